r"""The variational objective: how good the aggregated draws are, without ever evaluating their density.

$$\mathcal L(F) = \mathbb E_{\theta_k \sim p_k} \bigl[\log p(F(\theta_1, \ldots, \theta_K), X)\bigr] + \tilde H(F)$$

is below the log evidence where $\tilde H$ is below the entropy of $F(\theta_1, \ldots, \theta_K)$ (`entropies.py`).

`Objective` estimates it from a batch of draws: log densities and scores come from the target, and the gradient by
automatic differentiation of the one function `Local.__call__`.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..aggregators.base import AbstractAggregator, merge_all, prepare_all
from ..aggregators.weights import AbstractWeights, with_weights
from ..space import Scalar
from .entropies import AbstractEntropy, Parts

LogDensity = Callable[
    [Float[Array, "point dim"]], tuple[Float[Array, " point"], Float[Array, "point dim"]]
]
"""A `Target`, or anything that is called like one: points to log densities and scores."""


class Estimate(NamedTuple):
    """The objective at some weights, its Monte Carlo error, and its gradient: one array for each of the weights."""

    value: Float[Array, ""]
    error: Float[Array, ""]
    gradient: list[Array]


class QuadraticControl(NamedTuple):
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
    hill: QuadraticControl
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
        self._hill = QuadraticControl(jnp.asarray(np.zeros(dim)), jnp.asarray(np.zeros((dim, dim))))
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
        points, prepared = _merge(
            with_weights(self.aggregator, weights), self.prepared, jnp.asarray(batch)
        )
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

    def __call__(
        self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]
    ) -> Estimate:
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
    hill: QuadraticControl, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    """Heights and slopes of a hill at some points."""
    slopes = (hill.centre - points) @ hill.precision
    return 0.5 * jnp.sum(slopes * (points - hill.centre), axis=1), slopes


def _fit_hill(
    precision: Float[np.ndarray, "dim dim"],
    points: Float[np.ndarray, "point dim"],
    scores: Float[np.ndarray, "point dim"],
) -> QuadraticControl:
    """The hill whose slope is, on average over points, that of the target, and which is as steep in all."""
    mean, slope = points.mean(axis=0), scores.mean(axis=0)
    centred = points - mean
    known = np.diag(precision) > 0  # a hill need not stand in all coordinates
    fall = -np.sum(centred * (scores - slope), where=known)
    steepness = fall / max(np.sum((centred @ precision) * centred), 1e-300)
    precision = precision * (steepness if steepness > 0 else 1.0)
    centre = mean + np.linalg.pinv(precision, hermitian=True) @ slope
    return QuadraticControl(jnp.asarray(centre), jnp.asarray(precision))
