r"""A Gaussian with unknown precision matrix, and its mean a point estimate.

$$\Lambda \sim \mathrm{Wishart}(\nu, V), \qquad x_n \mid \Lambda \sim N(\mu, \Lambda^{-1}).$$

As in Rabinovich, Angelino and Jordan (2015), $\mu$ is not sampled: it is estimated by the mean of
all rows, the average of the shards' means weighted by their numbers of rows. All shards use the
same $\mu$, so that their log densities add up.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import multigammaln
from jaxtyping import Array, Float
from numpyro.distributions import biject_to, constraints

from ..data.rows import Rows
from ..data.shard import Shard, Shards
from ..model import Model
from ..samplers.wishart_exact import Wishart, WishartExact
from ..space import Params, Point, PositiveDefinite, Scalar
from .moments import moments
from .simulated import Simulated, check_columns


class NormalWishart(Model):
    """A Gaussian with a Wishart prior on its precision matrix.

    Rows are `x`, an array (row, dim); the parameter is `precision`.

    Args:
        dim: number of columns.
        dof: degrees of freedom ν of the prior, above dim − 1; by default dim + 2.
        scale: scale matrix V of the prior; by default the identity.
        mean: the mean μ; by default the mean of all rows.

    >>> NormalWishart(3)
    NormalWishart(precision: PositiveDefinite(shape=(3, 3)))
    """

    exact_sampler = WishartExact

    def __init__(
        self,
        dim: int,
        dof: float | None = None,
        scale: Any = None,
        *,
        mean: Any = None,
    ):
        self.dim = dim
        self.dof = dim + 2.0 if dof is None else float(dof)
        self.scale = np.eye(dim) if scale is None else np.asarray(scale, float)
        self.mean = None if mean is None else np.asarray(mean, float)
        if not self.dof > dim - 1:
            raise ValueError(f"dof must be above dim - 1 = {dim - 1}; got {self.dof}.")
        if self.scale.shape != (dim, dim) or not _positive_definite(self.scale):
            raise ValueError(
                f"scale must be a positive-definite {dim} × {dim} matrix; got shape "
                f"{self.scale.shape}."
            )
        super().__init__(
            space={"precision": PositiveDefinite(dim)},
            log_prior=self._log_prior,
            log_likelihood=self._log_likelihood,
            derived=None if mean is None else lambda _: {"mean": jnp.asarray(self.mean)},
        )

    def __eq__(self, other: object) -> bool:
        """Compare by value: `fitted` returns a new model on every call, and must not recompile."""
        return isinstance(other, NormalWishart) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        mean = None if self.mean is None else self.mean.tobytes()
        return self.dim, self.dof, self.scale.tobytes(), mean

    def fitted(self, shards: Shards) -> "NormalWishart":
        check_columns(shards, self.dim)
        if self.mean is not None:
            return self
        sums = [
            (jnp.einsum("n,nd->d", shard.weights, shard.rows["x"]), float(jnp.sum(shard.weights)))
            for shard in shards
        ]
        totals, counts = zip(*sums, strict=True)
        mean = np.sum(totals, axis=0) / sum(counts)
        return NormalWishart(self.dim, self.dof, self.scale, mean=mean)

    # A point holds the Cholesky factor of the precision. The next two methods equal the log prior
    # and the log likelihood of params, but need not factorize a matrix again and differentiate the
    # factorization, and read the rows once for a batch of points.

    def log_prior_at(self, point: Point) -> Scalar:
        params, log_det = self.space.constrain_with_log_det(point)
        log_det_scale = np.linalg.slogdet(self.scale)[1]
        constant = 0.5 * self.dof * log_det_scale + multigammaln(0.5 * self.dof, self.dim)
        square = jnp.sum(np.linalg.inv(self.scale) * params["precision"])
        density = (self.dof - self.dim - 1) * _half_log_det(point) - 0.5 * square - constant
        return density - 0.5 * self.dof * self.dim * jnp.log(2.0) + log_det

    def log_likelihood_at(self, point: Point, shard: Shard, is_batched: bool = False) -> Scalar:
        del is_batched  # rows are read once, for any number of points
        scatter, count = self._scatter(shard)
        per_row = _half_log_det(point) - 0.5 * self.dim * jnp.log(2 * jnp.pi)
        return count * per_row - 0.5 * jnp.sum(scatter * self.space.constrain(point)["precision"])

    def _scatter(self, shard: Shard) -> tuple[Float[Array, "dim dim"], Scalar]:
        """Return the scatter matrix of a shard's rows about the mean, and their number."""
        centred = shard.rows["x"] - self._known_mean()
        return (shard.weights[:, None] * centred).T @ centred, jnp.sum(shard.weights)

    def posterior_of(self, shard: Shard, prior_power: Scalar | float = 1.0) -> Wishart:
        """Return the exact posterior of the precision, given a shard and a power of the prior."""
        scatter, count = self._scatter(shard)
        dof = prior_power * (self.dof - self.dim - 1) + count + self.dim + 1
        return Wishart(dof, prior_power * jnp.linalg.inv(self.scale) + scatter)

    def simulate(
        self, seed: int, num_rows: int, params: Mapping[str, Any] | None = None
    ) -> Simulated:
        """Simulate rows about the mean, or zero, given `params`.

        By default, `params` are a draw from the prior.
        """
        from scipy.stats import wishart  # here, as scipy.stats takes a second to import

        generator = np.random.default_rng(seed)
        prior = np.atleast_2d(wishart(self.dof, self.scale).rvs(random_state=generator))
        precision = prior if params is None else np.asarray(params["precision"], float)
        mean = np.zeros(self.dim) if self.mean is None else self.mean
        root = np.linalg.cholesky(precision)
        noise = np.linalg.solve(root.T, generator.normal(size=(self.dim, num_rows))).T
        return Simulated({"precision": precision}, {"x": mean + noise})

    def test_functions(self, params: Params) -> dict[str, Array]:
        """Return moments of the eigenvalues of the covariance matrix, the largest first."""
        return moments(1 / jnp.linalg.eigvalsh(params["precision"]))

    def _known_mean(self) -> Float[np.ndarray, " dim"]:
        if self.mean is None:
            raise ValueError(
                "the mean is not known yet: pass NormalWishart(..., mean=...), or let infer "
                "estimate it."
            )
        return self.mean

    def _log_prior(self, params: Params) -> Scalar:
        prior = dist.Wishart(self.dof, scale_matrix=self.scale, validate_args=False)
        return prior.log_prob(params["precision"])

    def _log_likelihood(self, params: Params, rows: Rows) -> Float[Array, " row"]:
        centred = rows["x"] - self._known_mean()
        root = jnp.linalg.cholesky(params["precision"])
        square = jnp.sum((centred @ root) ** 2, axis=1)
        return (
            jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * square - 0.5 * self.dim * jnp.log(2 * jnp.pi)
        )


def _half_log_det(point: Point) -> Scalar:
    """Return half the log determinant of the matrix at a point."""
    root = biject_to(constraints.lower_cholesky)(point)
    return jnp.sum(jnp.log(jnp.diagonal(root)))


def scott_design() -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the five-dimensional example of Scott et al. (2016).

    They are from memory, and not verified.
    """
    covariance = np.array(
        [
            [1.0, 0.99, 0.98, 0.0, -0.70],
            [0.99, 1.0, 0.97, 0.0, -0.75],
            [0.98, 0.97, 1.0, 0.0, -0.60],
            [0.0, 0.0, 0.0, 1.0, 0.0],
            [-0.70, -0.75, -0.60, 0.0, 1.0],
        ]
    )
    return np.arange(1.0, 6.0), covariance


def _positive_definite(matrix: np.ndarray) -> bool:
    return bool(np.allclose(matrix, matrix.T) and np.linalg.eigvalsh(matrix).min() > 0)
