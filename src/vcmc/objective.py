r"""The variational objective: how good the aggregated draws are, without ever evaluating their density.

$$\mathcal L(F) = \mathbb E_{\theta_k \sim p_k} \bigl[\log p(F(\theta_1, \ldots, \theta_K), X)\bigr] + \tilde H(F)$$

is below the log evidence where $\tilde H$ is below the entropy of $F(\theta_1, \ldots, \theta_K)$. For sums $F = \sum_k F_k$
of independent parts, let $H_k$ be the entropy of shard $k$ and $j_k = \mathbb E \log |\det J(F_k)|$. The entropy power
inequality gives three bounds, each below the next:

| | | |
|---|---|---|
| `Relaxed` | $\min_k H_k + \frac 1 K \sum_k j_k$ | the paper's; concave in the weights |
| `Tighter` | $\min_k H_k + \max_k j_k$ | the paper's other one; not concave |
| `EntropyPower` | $\frac d 2 \log \sum_k \exp \frac 2 d (H_k + j_k)$ | exact for Gaussians of proportional covariances |

`Objective` estimates it from a batch of draws: log densities and scores come from the target, and the gradient by
automatic differentiation of the one function `_estimate`.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .aggregators.base import AbstractAggregator, merge_all, prepare_all
from .aggregators.weights import AbstractWeights, with_weights
from .typing import Scalar

LogDensity = Callable[[Float[Array, "point dim"]], tuple[Float[Array, " point"], Float[Array, "point dim"]]]
"""A `Target`, or anything that is called like one: points to log densities and scores."""


class AbstractEntropyEstimate(eqx.Module):
    """How the entropy of one shard is estimated from its draws."""

    @abc.abstractmethod
    def __call__(self, draws: Float[np.ndarray, "draw dim"]) -> float:
        """The differential entropy, in nats."""


class Gaussian(AbstractEntropyEstimate):
    """The entropy of a Gaussian with the draws' covariance: an upper bound, whatever the shard's shape.

    >>> draws = np.random.default_rng(0).normal(size=(100_000, 1))
    >>> round(Gaussian()(draws), 2)  # 0.5 log(2 pi e)
    1.42
    """

    def __call__(self, draws: Float[np.ndarray, "draw dim"]) -> float:
        covariance = np.atleast_2d(np.cov(draws, rowvar=False))
        return 0.5 * float(np.linalg.slogdet(2 * np.pi * np.e * covariance)[1])


class NearestNeighbours(AbstractEntropyEstimate):
    """The estimate of Kozachenko and Leonenko, from distances to the nearest draws, after whitening.

    It sees shapes that are not Gaussian, and needs draws that hardly depend on each other: in a chain
    that moves slowly, neighbours are too near. Its bias grows with the number of dimensions; above ten or so
    prefer `Gaussian`.
    """

    num_neighbours: int = 4

    def __check_init__(self) -> None:
        if self.num_neighbours < 1:
            raise ValueError(f"num_neighbours must be 1 or more; got {self.num_neighbours}.")

    def __call__(self, draws: Float[np.ndarray, "draw dim"]) -> float:
        from scipy.spatial import KDTree  # here, not above: they add to the time of `import vcmc`
        from scipy.special import digamma, gammaln

        num_draws, dim = draws.shape
        if num_draws <= self.num_neighbours:
            raise ValueError(
                f"NearestNeighbours({self.num_neighbours}) needs more draws than neighbours; got {num_draws} draws."
            )
        root = np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False)))
        whitened = np.linalg.solve(root, (draws - draws.mean(axis=0)).T).T
        distances = KDTree(whitened).query(whitened, k=[self.num_neighbours + 1])[0][:, 0]
        apart = distances[distances > 0]  # a chain that stood still repeats its draws
        log_ball = 0.5 * dim * np.log(np.pi) - gammaln(dim / 2 + 1)
        spread = dim * float(np.mean(np.log(apart)))
        return float(
            digamma(num_draws) - digamma(self.num_neighbours) + log_ball + spread + np.log(np.diag(root)).sum()
        )


class AbstractEntropy(eqx.Module):
    """A bound on the entropy of aggregated draws, from the shards' entropies and log determinants."""

    estimate: eqx.AbstractVar[AbstractEntropyEstimate]

    @abc.abstractmethod
    def __call__(
        self, entropies: Float[Array, " shard"], log_dets: Float[Array, " shard"], dim: int
    ) -> Scalar:
        """The bound."""


class Relaxed(AbstractEntropy):
    """The paper's relaxation. Its optimum is biased where shards differ."""

    estimate: AbstractEntropyEstimate = eqx.field(default_factory=Gaussian)

    def __call__(
        self, entropies: Float[Array, " shard"], log_dets: Float[Array, " shard"], dim: int
    ) -> Scalar:
        del dim
        return jnp.min(entropies) + jnp.mean(log_dets)


class Tighter(AbstractEntropy):
    """The paper's tighter relaxation, which is not concave: only the widest part gets a gradient."""

    estimate: AbstractEntropyEstimate = eqx.field(default_factory=Gaussian)

    def __call__(
        self, entropies: Float[Array, " shard"], log_dets: Float[Array, " shard"], dim: int
    ) -> Scalar:
        del dim
        return jnp.min(entropies) + jnp.max(log_dets)


class EntropyPower(AbstractEntropy):
    """The entropy power bound itself, exact where the shards are Gaussians of proportional covariances."""

    estimate: AbstractEntropyEstimate = eqx.field(default_factory=Gaussian)

    def __call__(
        self, entropies: Float[Array, " shard"], log_dets: Float[Array, " shard"], dim: int
    ) -> Scalar:
        return 0.5 * dim * jax.nn.logsumexp(2 * (entropies + log_dets) / dim)


class Estimate(NamedTuple):
    """The objective at some weights, its Monte Carlo error, and its gradient: one array for each of the weights."""

    value: Float[Array, ""]
    error: Float[Array, ""]
    gradient: list[Array]


class Objective:
    """The variational objective of aggregators that differ in their weights only, on the draws of the shards.

    Args:
        target: the full-data log densities and scores of points: a `Target`, or what is called like one.
        entropy: the bound on the entropy.
        aggregator: the aggregator whose weights are to be judged.
        draws: draws of the shards, as points.
    """

    def __init__(
        self,
        target: LogDensity,
        entropy: AbstractEntropy,
        aggregator: AbstractAggregator,
        draws: Float[Array, "shard draw dim"],
    ):
        self.target = target
        self.entropy = entropy
        self.aggregator = aggregator
        self.num_draws = draws.shape[1]
        self.entropies = jnp.array([entropy.estimate(np.asarray(shard)) for shard in draws])
        self._prepared = prepare_all(aggregator, draws)

    def __call__(self, weights: list[AbstractWeights], batch: Int[np.ndarray, " point"]) -> Estimate:
        """The objective and its gradient, from some of the draws."""
        aggregator = with_weights(self.aggregator, weights)
        points, prepared = _merge(aggregator, self._prepared, jnp.asarray(batch))
        log_densities, scores = self.target(points)
        return _differentiate(
            weights, self.aggregator, prepared, log_densities, scores, self.entropy, self.entropies
        )

    def merged(self, weights: list[AbstractWeights]) -> Float[Array, "draw dim"]:
        """All draws, aggregated."""
        return merge_all(with_weights(self.aggregator, weights), self._prepared)


@eqx.filter_jit
def _merge(
    aggregator: AbstractAggregator, prepared: Any, batch: Int[Array, " point"]
) -> tuple[Float[Array, "point dim"], Any]:
    chosen = jax.tree.map(lambda leaf: leaf[batch], prepared)
    return jax.vmap(aggregator.merge)(chosen), chosen


@eqx.filter_jit
def _differentiate(weights: list[AbstractWeights], *rest: Any) -> Estimate:
    (value, error), gradient = jax.value_and_grad(_estimate, has_aux=True)(weights, *rest)
    return Estimate(value, error, [part.values for part in gradient])


def _estimate(
    weights: list[AbstractWeights],
    aggregator: AbstractAggregator,
    prepared: Any,
    log_densities: Float[Array, " point"],
    scores: Float[Array, "point dim"],
    entropy: AbstractEntropy,
    entropies: Float[Array, " shard"],
) -> tuple[Scalar, Scalar]:
    """The objective on a batch, and its error. The target is known by values and scores at the batch's points."""
    aggregator = with_weights(aggregator, weights)
    points = jax.vmap(aggregator.merge)(prepared)
    log_dets = jax.vmap(aggregator.log_dets)(prepared)
    here = log_densities + jnp.sum(scores * (points - jax.lax.stop_gradient(points)), axis=1)

    def bound(mean: Float[Array, " shard"]) -> Scalar:
        return entropy(entropies, mean, points.shape[1])

    mean = jnp.mean(log_dets, axis=0)
    slopes = jax.grad(bound)(jax.lax.stop_gradient(mean))
    single = jax.lax.stop_gradient(here + log_dets @ slopes)
    return jnp.mean(here) + bound(mean), jnp.std(single, ddof=1) / jnp.sqrt(len(single))
