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

`GaussianSum` is no bound but the entropy itself where the sum is Gaussian: that of the covariance of $F$.

`Objective` estimates it from a batch of draws: log densities and scores come from the target, and the gradient by
automatic differentiation of the one function `Local.__call__`.
"""

import abc
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .aggregators.base import AbstractAggregator, merge_all, prepare_all
from .aggregators.weights import AbstractWeights, means_and_covariances, shrunk_covariances, with_weights
from .typing import Scalar

LogDensity = Callable[[Float[Array, "point dim"]], tuple[Float[Array, " point"], Float[Array, "point dim"]]]
"""A `Target`, or anything that is called like one: points to log densities and scores."""


MANY = 1000  # coordinates, above which covariances of few draws are not estimated


class AbstractEntropyEstimate(eqx.Module):
    """How the entropies of shards are estimated from their draws."""

    @abc.abstractmethod
    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        """The differential entropies, in nats."""


class Gaussian(AbstractEntropyEstimate):
    """The entropy of a Gaussian with the draws' covariance: an upper bound, whatever the shard's shape.

    Of more than a thousand coordinates, and no more draws than that, covariances are taken as zero: a coarser bound, but their matrices
    would say next to nothing and fill the memory.

    >>> draws = jax.random.normal(jax.random.key(0), (1, 100_000, 1))
    >>> Gaussian()(draws).round(2).tolist()  # 0.5 log(2 pi e)
    [1.42]
    """

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        num_draws, dim = draws.shape[1:]
        if num_draws > dim:
            covariances = means_and_covariances(draws)[1] * num_draws / (num_draws - 1)
        elif dim > MANY:
            return 0.5 * jnp.sum(jnp.log(2 * jnp.pi * jnp.e * jnp.var(draws, axis=1, ddof=1)), axis=1)
        else:
            covariances = shrunk_covariances(draws)  # a plain one would have no determinant
        return jnp.asarray(0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariances)[1])


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

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        return jnp.array([self._entropy(np.asarray(shard)) for shard in draws])

    def _entropy(self, draws: Float[np.ndarray, "draw dim"]) -> float:
        from scipy.spatial import KDTree  # here, not above: they add to the time of `import vcmc`
        from scipy.special import digamma, gammaln

        draws = np.unique(draws, axis=0)  # a chain that stood still repeats its draws
        num_draws, dim = draws.shape
        if num_draws <= max(self.num_neighbours, dim):
            raise ValueError(
                f"NearestNeighbours({self.num_neighbours}) needs more draws than neighbours and dimensions; got {num_draws} "
                f"different draws in {dim} dimensions. Use the estimate objective.Gaussian()."
            )
        root = np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False)))
        whitened = np.linalg.solve(root, (draws - draws.mean(axis=0)).T).T
        apart = KDTree(whitened).query(whitened, k=[self.num_neighbours + 1])[0][:, 0]
        log_ball = 0.5 * dim * np.log(np.pi) - gammaln(dim / 2 + 1)
        spread = dim * np.mean(np.log(apart)) + np.log(np.diag(root)).sum()
        return float(digamma(num_draws) - digamma(self.num_neighbours) + log_ball + spread)


class Parts(NamedTuple):
    """What an entropy is computed from: the shards' entropies and log determinants, and the covariance of merged draws."""

    entropies: Float[Array, " shard"]
    log_dets: Float[Array, " shard"]
    covariance: Array | None
    dim: int


class AbstractEntropy(eqx.Module):
    """A bound on the entropy of aggregated draws, from the shards' entropies and log determinants."""

    estimate: AbstractEntropyEstimate = eqx.field(default_factory=Gaussian)

    def of_shards(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        """The entropies of the shards."""
        return self.estimate(draws)

    @abc.abstractmethod
    def __call__(self, parts: Parts) -> Scalar:
        """The bound."""


class Relaxed(AbstractEntropy):
    """The paper's relaxation. Its optimum is biased where shards differ."""

    def __call__(self, parts: Parts) -> Scalar:
        return jnp.min(parts.entropies) + jnp.mean(parts.log_dets)


class Tighter(AbstractEntropy):
    """The paper's tighter relaxation, which is not concave: only the widest part gets a gradient."""

    def __call__(self, parts: Parts) -> Scalar:
        return jnp.min(parts.entropies) + jnp.max(parts.log_dets)


class EntropyPower(AbstractEntropy):
    """The entropy power bound itself, exact where the shards are Gaussians of proportional covariances."""

    def __call__(self, parts: Parts) -> Scalar:
        powers = 2 * (parts.entropies + parts.log_dets) / parts.dim
        return 0.5 * parts.dim * jax.nn.logsumexp(powers)


class GaussianSum(AbstractEntropy):
    r"""The entropy that a Gaussian of the merged draws' covariance has: $\frac 1 2 \log \det 2 \pi e \sum_k W_k \hat\Sigma_k W_k^\top$.

    Exact where sums of the shards' parts are Gaussian, which they nearly are for many shards whatever the shards' shape; else
    an upper bound. It is for families that are linear in all coordinates together: `AffineFamily`, `VectorFamily`.
    """

    def of_shards(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        return jnp.asarray(np.zeros(len(draws)))  # they are not asked for

    def __call__(self, parts: Parts) -> Scalar:
        covariance = parts.covariance
        if covariance is None:
            raise TypeError(
                "the entropy GaussianSum is for families that are linear in all coordinates together, such as AffineFamily() or "
                "VectorFamily(); for others use EntropyPower() or Relaxed()."
            )
        if covariance.ndim == 1:
            log_det = jnp.sum(jnp.log(covariance))
        else:
            log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(covariance))))
        return 0.5 * (log_det + parts.dim * jnp.log(2 * jnp.pi * jnp.e))


class Estimate(NamedTuple):
    """The objective at some weights, its Monte Carlo error, and its gradient: one array for each of the weights."""

    value: Float[Array, ""]
    error: Float[Array, ""]
    gradient: list[Array]


class Hill(NamedTuple):
    r"""A quadratic $-\frac 1 2 (u - c)^\top P (u - c)$ that is like the target, to make estimates less noisy.

    Its expectation under linear aggregators has a closed form. What is left to estimate from a batch of draws is the expected
    difference between target and hill, which varies far less than the target. Any hill leaves the estimate unbiased.
    """

    centre: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]


class Local(eqx.Module):
    """The objective near some weights, from one batch of draws at which the target was evaluated.

    The target is known by its values and scores at the batch's points. Away from those points it is taken to bend as the hill
    does: the difference to the hill goes on in a straight line. Value and gradient are exact at the weights of the
    evaluation, and good enough for a few steps from there.
    """

    aggregator: AbstractAggregator
    prepared: Any
    points: Float[Array, "point dim"]
    differences: Float[Array, " point"]
    slopes: Float[Array, "point dim"]
    hill: Hill
    moments: Any
    entropy: AbstractEntropy
    entropies: Float[Array, " shard"]

    def __call__(self, weights: list[AbstractWeights]) -> tuple[Scalar, Scalar]:
        """The objective and its Monte Carlo error."""
        aggregator = with_weights(self.aggregator, weights)
        points = jax.vmap(aggregator.merge)(self.prepared)
        log_dets = jax.vmap(aggregator.log_dets)(self.prepared)
        differences = self.differences + jnp.sum(self.slopes * (points - self.points), axis=1)
        expected = -0.5 * aggregator.expected_square(self.moments, *self.hill)

        covariance = aggregator.covariance(self.moments)

        def bound(log_dets: Float[Array, " shard"]) -> Scalar:
            return self.entropy(Parts(self.entropies, log_dets, covariance, points.shape[1]))

        mean = jnp.mean(log_dets, axis=0)
        single = differences + log_dets @ jax.grad(bound)(mean)
        error = jnp.std(single, ddof=1) / jnp.sqrt(len(single))
        return expected + jnp.mean(differences) + bound(mean), jax.lax.stop_gradient(error)

    def estimate(self, weights: list[AbstractWeights]) -> Estimate:
        """The objective, its Monte Carlo error, and its gradient."""
        (value, error), gradient = jax.value_and_grad(self, has_aux=True)(weights)
        return Estimate(value, error, [part.values for part in gradient])


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
        self.aggregator = aggregator
        self.num_shards, self.num_draws, dim = draws.shape
        self._entropy = entropy
        self._entropies = entropy.of_shards(draws)
        self.prepared = prepare_all(aggregator, draws)
        self._hill = Hill(jnp.asarray(np.zeros(dim)), jnp.asarray(np.zeros((dim, dim))))
        self._seen: list[tuple[Array, Array]] = []

    @cached_property
    def _moments(self) -> Any:
        return self.aggregator.moments(self.prepared)

    @cached_property
    def _precision(self) -> Float[np.ndarray, "dim dim"] | None:
        return self.aggregator.precision(self._moments)

    @property
    def is_bent(self) -> bool:
        """Whether a hill stands for the target in all coordinates, so that a few steps may be made from one evaluation."""
        return self._precision is not None and bool(np.all(np.diag(self._precision) > 0))

    def near(self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]) -> Local:
        """The objective near some weights, from some draws: `batch` has the numbers of every shard's draws."""
        points, prepared = _merge(with_weights(self.aggregator, weights), self.prepared, jnp.asarray(batch))
        log_densities, scores = self.target(points)
        self._seen.append((points, scores))
        heights, slopes = _heights(self._hill, points)
        return Local(
            self.aggregator,
            prepared,
            points,
            log_densities - heights,
            scores - slopes,
            self._hill,
            self._moments,
            self._entropy,
            self._entropies,
        )

    def __call__(self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]) -> Estimate:
        """The objective, its Monte Carlo error and its gradient at some weights, from some draws."""
        return _estimate(self.near(weights, batch), weights)

    def value(self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]) -> float:
        """The objective at some weights, from some draws."""
        return float(_value(self.near(weights, batch), weights))

    def learn(self) -> None:
        """Put the hill where the evaluations since the last call say, and forget them."""
        if self._precision is not None and self._seen:
            points, scores = (np.concatenate(each) for each in zip(*self._seen, strict=True))
            self._hill = _fit_hill(self._precision, points, scores)
        self._seen = []

    def merged(self, weights: list[AbstractWeights]) -> Float[Array, "draw dim"]:
        """All draws, aggregated."""
        return merge_all(with_weights(self.aggregator, weights), self.prepared)


@eqx.filter_jit
def _value(local: Local, weights: list[AbstractWeights]) -> Scalar:
    return local(weights)[0]


@eqx.filter_jit
def _estimate(local: Local, weights: list[AbstractWeights]) -> Estimate:
    return local.estimate(weights)


@eqx.filter_jit
def _merge(
    aggregator: AbstractAggregator, prepared: Any, batch: Int[Array, "point shard"]
) -> tuple[Float[Array, "point dim"], Any]:
    chosen = jax.tree.map(lambda leaf: leaf[jnp.arange(batch.shape[1]), batch], prepared)
    return jax.vmap(aggregator.merge)(chosen), chosen


@jax.jit
def _heights(
    hill: Hill, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    """Heights and slopes of a hill at some points."""
    slopes = (hill.centre - points) @ hill.precision
    return 0.5 * jnp.sum(slopes * (points - hill.centre), axis=1), slopes


def _fit_hill(
    precision: Float[np.ndarray, "dim dim"],
    points: Float[np.ndarray, "point dim"],
    scores: Float[np.ndarray, "point dim"],
) -> Hill:
    """The hill whose slope is, on average over points, that of the target, and which is as steep in all."""
    mean, slope = points.mean(axis=0), scores.mean(axis=0)
    centred = points - mean
    known = np.diag(precision) > 0  # a hill need not stand in all coordinates
    fall = -np.sum(centred * (scores - slope), where=known)
    steepness = fall / max(np.sum((centred @ precision) * centred), 1e-300)
    precision = precision * (steepness if steepness > 0 else 1.0)
    centre = mean + np.linalg.pinv(precision, hermitian=True) @ slope
    return Hill(jnp.asarray(centre), jnp.asarray(precision))
