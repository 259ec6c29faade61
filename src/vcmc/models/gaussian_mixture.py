r"""A mixture of spherical Gaussians with equal weights and unknown centres.

$$\theta_l \sim N(0, \tau^2 I), \qquad x_n \sim \frac 1 L \sum_l N(\theta_l, \sigma^2 I).$$

The assignments are summed out of the likelihood.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.rows import Rows
from ..data.shard import Shard, Shards
from ..model import Model
from ..samplers.mixture_gibbs import MixtureGibbs
from ..space import Exchangeable, Params, Point, Real, Scalar
from .simulated import Simulated, check_columns

NUM_KMEANS = 20  # k-means++ runs on the pilot; half of them may end in a wrong mode
NUM_STARTS = 3  # the best of them are starting points


class GaussianMixture(Model):
    """A mixture of Gaussians.

    Rows are `x`, an array (row, dim); the parameter is `centres`, (component, dim).

    Args:
        num_components: number of components L.
        dim: number of columns.
        prior_scale: sd τ of the centres' coordinates.
        noise_scale: sd σ of a row around its centre.

    >>> GaussianMixture(8, 2)
    GaussianMixture(centres: Exchangeable(8, Real(shape=(2,))))
    """

    exact_sampler = MixtureGibbs

    def __init__(
        self, num_components: int, dim: int, prior_scale: float = 2.0, noise_scale: float = 1.0
    ):
        if not (prior_scale > 0 and noise_scale > 0):
            raise ValueError(
                f"prior_scale and noise_scale must be positive; got {prior_scale} and "
                f"{noise_scale}."
            )
        super().__init__(
            space={"centres": Exchangeable(num_components, Real(dim))},
            log_prior=self._log_prior,
            log_likelihood=self._log_likelihood,
        )
        self.num_components = num_components
        self.dim = dim
        self.prior_scale = prior_scale
        self.noise_scale = noise_scale

    def fitted(self, shards: Shards) -> "GaussianMixture":
        """Check the rows, and return the model itself: it has no point estimates."""
        check_columns(shards, self.dim)
        return self

    def starts(self, shard: Shard, key: Array) -> list[Point]:
        """Return the best centres of several k-means++ runs on the rows of one shard."""
        from scipy.cluster.vq import kmeans2  # here, as it adds to the time of `import vcmc`

        x = np.asarray(shard.rows["x"])[np.asarray(shard.weights) > 0]
        if len(x) < self.num_components:
            return []
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        runs = []
        for _ in range(NUM_KMEANS):
            centres, labels = kmeans2(
                x, self.num_components, minit="++", rng=generator, missing="warn"
            )
            runs.append((float(np.sum((x - centres[labels]) ** 2)), centres))
        runs.sort(key=lambda run: run[0])
        return [jnp.asarray(centres.ravel()) for _, centres in runs[:NUM_STARTS]]

    def simulate(
        self, seed: int, num_rows: int, params: Mapping[str, Any] | None = None
    ) -> Simulated:
        """Simulate rows given `params`, by default a draw from the prior."""
        generator = np.random.default_rng(seed)
        prior = self.prior_scale * generator.normal(size=(self.num_components, self.dim))
        centres = prior if params is None else np.asarray(params["centres"], float)
        labels = generator.integers(self.num_components, size=num_rows)
        noise = self.noise_scale * generator.normal(size=(num_rows, self.dim))
        return Simulated({"centres": centres}, {"x": centres[labels] + noise})

    def comembership(
        self, params: Params, x: Float[Array, "point dim"]
    ) -> Float[Array, "point point"]:
        """Return the probability that two points share a component, for all pairs of points."""
        probabilities = jax.nn.softmax(self._log_joint(params, x), axis=1)
        return probabilities @ probabilities.T

    def test_functions(self, params: Params, x: Float[Array, "point dim"]) -> dict[str, Array]:
        """Return the comembership of all pairs of points."""
        return {"comembership": self.comembership(params, x)[np.triu_indices(len(x), 1)]}

    def _log_joint(self, params: Params, x: Array) -> Float[Array, "row component"]:
        """Return the log density of each row and component, without the terms all share."""
        centres = params["centres"] / self.noise_scale
        return (x / self.noise_scale) @ centres.T - 0.5 * jnp.sum(centres**2, axis=1)

    def _log_prior(self, params: Params) -> Scalar:
        standard = params["centres"] / self.prior_scale
        return -0.5 * jnp.sum(standard**2) - standard.size * jnp.log(
            self.prior_scale * jnp.sqrt(2 * jnp.pi)
        )

    def _log_likelihood(self, params: Params, rows: Rows) -> Float[Array, " row"]:
        x = jnp.asarray(rows["x"])
        shared = -0.5 * jnp.sum((x / self.noise_scale) ** 2, axis=1) - self.dim * jnp.log(
            self.noise_scale * jnp.sqrt(2 * jnp.pi)
        )
        log_sums = jax.nn.logsumexp(self._log_joint(params, x), axis=1)
        return shared + log_sums - jnp.log(self.num_components)
