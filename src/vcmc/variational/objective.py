r"""The variational objective, which never evaluates the density of the aggregated draws.

$$\mathcal L(F) = \mathbb E_{\theta_k \sim p_k} \bigl[\log p(F(\theta_1, \ldots, \theta_K), X)\bigr]
+ \tilde H(F)$$

is below the log evidence if $\tilde H$ is below the entropy of $F(\theta_1, \ldots, \theta_K)$
(`entropies.py`).

`Objective` estimates it from a batch of draws: log densities and scores come from the target, and
the gradient from automatic differentiation of the one function `LocalObjective.__call__`.
"""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..aggregators.base import AbstractAggregator, prepare_all
from ..aggregators.weights import AbstractWeights, with_weights
from ..linalg.shrinkage import TINY
from ..space import Scalar
from .entropies import AbstractEntropy, EntropyInputs

LogDensity = Callable[
    [Float[Array, "point dim"]], tuple[Float[Array, " point"], Float[Array, "point dim"]]
]
"""A `Target`, or another callable from points to log densities and scores."""


class Estimate(NamedTuple):
    """The objective, its Monte Carlo error, and its gradient: one array for each of the weights."""

    value: Float[Array, ""]
    error: Float[Array, ""]
    gradient: list[Array]


class QuadraticControl(NamedTuple):
    r"""A quadratic $-\frac 1 2 (u - c)^\top P (u - c)$ close to the target: a control variate.

    Its expectation under linear aggregators has a closed form. Batches of draws then estimate the
    expected difference between target and control only, which varies far less than the target.
    The estimate is unbiased whatever the control.
    """

    centre: Float[Array, " dim"]
    precision: Float[Array, "dim dim"]

    @classmethod
    def zero(cls, dim: int) -> "QuadraticControl":
        """Return the control that changes nothing."""
        return cls(jax.device_put(np.zeros(dim)), jax.device_put(np.zeros((dim, dim))))

    @classmethod
    def fit(
        cls,
        precision: Float[np.ndarray, "dim dim"],
        points: Float[np.ndarray, "point dim"],
        scores: Float[np.ndarray, "point dim"],
    ) -> "QuadraticControl":
        """Return the control with the target's mean score over points, and its mean curvature.

        Its precision is a multiple of the given one.
        """
        mean, mean_score = points.mean(axis=0), scores.mean(axis=0)
        centred = points - mean
        is_covered = np.diag(precision) > 0  # the control need not cover all coordinates
        fall = -np.sum(centred * (scores - mean_score), where=is_covered)
        factor = fall / max(np.sum((centred @ precision) * centred), TINY)
        precision = precision * (factor if factor > 0 else 1.0)
        centre = mean + np.linalg.pinv(precision, hermitian=True) @ mean_score
        return cls(jnp.asarray(centre), jnp.asarray(precision))


class LocalObjective(eqx.Module):
    """The objective near some weights, from one batch of draws at which the target was evaluated.

    The target is known by its values and scores at the batch's points. Away from those points its
    curvature is that of the control: the difference between the two is extrapolated linearly.
    Value and gradient are exact at the weights of the evaluation, and accurate enough for a few
    steps from there.
    """

    aggregator: AbstractAggregator
    prepared: Any
    points: Float[Array, "point dim"]
    differences: Float[Array, " point"]
    slopes: Float[Array, "point dim"]
    control: QuadraticControl
    moments: Any
    entropy: AbstractEntropy
    entropies: Float[Array, " shard"]

    def __call__(self, weights: list[AbstractWeights]) -> tuple[Scalar, Scalar]:
        """Return the objective and its Monte Carlo error."""
        aggregator = with_weights(self.aggregator, weights)
        points = jax.vmap(aggregator.merge)(self.prepared)
        log_dets = jax.vmap(aggregator.log_dets)(self.prepared)
        differences = self.differences + jnp.sum(self.slopes * (points - self.points), axis=1)
        expected = -0.5 * aggregator.expected_square(self.moments, *self.control)

        covariance = aggregator.covariance(self.moments)

        def bound(log_dets: Float[Array, " shard"]) -> Scalar:
            inputs = EntropyInputs(self.entropies, log_dets, covariance, points.shape[1])
            return self.entropy(inputs)

        mean = jnp.mean(log_dets, axis=0)
        single = differences + log_dets @ jax.grad(bound)(mean)
        error = jnp.std(single, ddof=1) / jnp.sqrt(len(single))
        return expected + jnp.mean(differences) + bound(mean), jax.lax.stop_gradient(error)

    def estimate(self, weights: list[AbstractWeights]) -> Estimate:
        """Return the objective, its Monte Carlo error and its gradient."""
        (value, error), gradient = jax.value_and_grad(self, has_aux=True)(weights)
        return Estimate(value, error, [part.values for part in gradient])


class Objective:
    """The variational objective of aggregators that differ in their weights, on the shards' draws.

    Args:
        target: the full-data log densities and scores of points: a `Target`, or a callable like it.
        entropy: the entropy of the aggregated draws.
        aggregator: the aggregator whose weights are learned.
        draws: draws of the shards, as points.
        pairs: which draw of each shard goes into each aggregated draw; by default the first draws
            of all shards, the second draws, and so on.
    """

    def __init__(
        self,
        target: LogDensity,
        entropy: AbstractEntropy,
        aggregator: AbstractAggregator,
        draws: Float[Array, "shard draw dim"],
        pairs: Int[np.ndarray, "shard draw"] | None = None,
    ):
        self.target = target
        self.aggregator = aggregator
        self.num_shards, self.num_draws, dim = draws.shape
        in_order = np.broadcast_to(np.arange(self.num_draws), draws.shape[:2])
        self.pairs = in_order if pairs is None else pairs
        self._entropy = entropy
        self._entropies = entropy.of_shards(draws)
        self.prepared = prepare_all(aggregator, draws)
        self._control = QuadraticControl.zero(dim)
        self._evaluations: list[tuple[Array, Array]] = []

    def with_target(self, target: LogDensity) -> "Objective":
        """Return the objective of another target, with the same prepared draws and control."""
        other = copy.copy(self)
        other.target = target
        other._evaluations = []
        return other

    @cached_property
    def _moments(self) -> Any:
        return self.aggregator.moments(self.prepared)

    @cached_property
    def _precision(self) -> Float[np.ndarray, "dim dim"] | None:
        return self.aggregator.precision(self._moments)

    @property
    def has_curvature(self) -> bool:
        """Whether a control covers all coordinates: then one evaluation serves several steps."""
        return self._precision is not None and bool(np.all(np.diag(self._precision) > 0))

    def localize(
        self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]
    ) -> LocalObjective:
        """Evaluate the target at a batch of draws, and return the objective near some weights.

        `batch` holds the indices of each shard's draws.
        """
        points, prepared = _merge(
            with_weights(self.aggregator, weights), self.prepared, jnp.asarray(batch)
        )
        log_densities, scores = self.target(points)
        self._evaluations.append((points, scores))
        heights, slopes = _evaluate_control(self._control, points)
        return LocalObjective(
            self.aggregator,
            prepared,
            points,
            log_densities - heights,
            scores - slopes,
            self._control,
            self._moments,
            self._entropy,
            self._entropies,
        )

    def __call__(
        self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]
    ) -> Estimate:
        """Return the objective, its Monte Carlo error and its gradient, from a batch of draws."""
        return _estimate(self.localize(weights, batch), weights)

    def value(self, weights: list[AbstractWeights], batch: Int[np.ndarray, "point shard"]) -> float:
        """Return the objective at some weights, from a batch of draws."""
        return float(_value(self.localize(weights, batch), weights))

    def update_control(self) -> None:
        """Fit the control variate to all evaluations since the last call, and discard them.

        Families without closed-form moments have no control.
        """
        if self._precision is not None and self._evaluations:
            points, scores = (
                np.concatenate(arrays) for arrays in zip(*self._evaluations, strict=True)
            )
            self._control = QuadraticControl.fit(self._precision, points, scores)
        self._evaluations = []

    def aggregate(self, weights: list[AbstractWeights]) -> Float[Array, "draw dim"]:
        """Return one draw for each tuple of paired draws, aggregated with some weights."""
        aggregator = with_weights(self.aggregator, weights)
        return aggregator.merge_pairs(self.prepared, self.pairs)


@eqx.filter_jit
def _value(local: LocalObjective, weights: list[AbstractWeights]) -> Scalar:
    return local(weights)[0]


@eqx.filter_jit
def _estimate(local: LocalObjective, weights: list[AbstractWeights]) -> Estimate:
    return local.estimate(weights)


@eqx.filter_jit
def _merge(
    aggregator: AbstractAggregator, prepared: Any, batch: Int[Array, "point shard"]
) -> tuple[Float[Array, "point dim"], Any]:
    selected = jax.tree.map(lambda leaf: leaf[jnp.arange(batch.shape[1]), batch], prepared)
    return jax.vmap(aggregator.merge)(selected), selected


@jax.jit
def _evaluate_control(
    control: QuadraticControl, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    """Return the values and gradients of a control at some points."""
    slopes = (control.centre - points) @ control.precision
    return 0.5 * jnp.sum(slopes * (points - control.centre), axis=1), slopes
