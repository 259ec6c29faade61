"""The interface of optimizers, and the loop that gradient methods share.

The loop runs in windows of iterations. If the objective's mean over a window does not exceed that
of the window before by more than the noise of the difference, steps become shorter; the second
time, it stops. The resulting weights are the mean over the last window.

To write a gradient method, subclass `AbstractGradient` and implement `init` and `update`.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..aggregators.weights import AbstractWeights
from ..linalg.stein import Draws
from .objective import LocalObjective, Objective

WINDOW = 4  # iterations
PLATEAU_DIVISOR = 3.0  # steps are divided by it on a plateau
MAX_PLATEAUS = 2  # the last of them ends the optimization
# draws per iteration: few where a control variate removes most of the noise, else the paper's
NUM_SAMPLES_WITH_CURVATURE = 5
NUM_SAMPLES_WITHOUT_CURVATURE = 40
# steps from one evaluation of the target, if its curvature is known; few if it used few shards,
# whose noise the steps would follow
NUM_STEPS_ALL_SHARDS = 16
NUM_STEPS_SOME_SHARDS = 2

Weights = list[AbstractWeights]


class OptimizationResult(NamedTuple):
    """The outcome of an optimization.

    Attributes:
        weights: the final weights; the initial ones if the optimization failed.
        values: the objective in each iteration.
        errors: its Monte Carlo errors.
        warning: a warning for the user; empty if there is none.
        failed: whether the target or the objective was not finite, or nothing was gained.
        evaluated: points near the combined draws and the target's scores there, if they are known.
        is_unsettled: whether the optimizer was asked to end before it settled.
    """

    weights: Weights
    values: Float[np.ndarray, " iteration"]
    errors: Float[np.ndarray, " iteration"]
    warning: str = ""
    failed: bool = False
    evaluated: tuple[Draws, Draws] | None = None
    is_unsettled: bool = False


class AbstractOptimizer(eqx.Module):
    """A method that maximizes the objective."""

    @abc.abstractmethod
    def maximize(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> OptimizationResult:
        """Raise an objective until it stops rising by more than its noise.

        Args:
            objective: the objective.
            weights: the initial weights.
            seed: the seed of the batches of draws.
            advance: called once in each iteration, to show progress.
        """


def check_counts(num_samples: int | None, max_iterations: int) -> None:
    """Raise an error unless there are two draws, to estimate a variance, and an iteration."""
    if num_samples is not None and num_samples < 2:
        raise ValueError(f"num_samples must be 2 or more; got {num_samples}.")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be 1 or more; got {max_iterations}.")


class AbstractGradient(AbstractOptimizer):
    """A method that follows noisy gradients."""

    num_samples: eqx.AbstractVar[int | None]
    data_fraction: eqx.AbstractVar[float]
    max_iterations: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        check_counts(self.num_samples, self.max_iterations)
        if not 0 < self.data_fraction <= 1:
            raise ValueError(
                f"data_fraction must be above 0 and at most 1; got {self.data_fraction}."
            )

    @abc.abstractmethod
    def init(self, weights: Weights) -> Any:
        """Return the method's initial state."""

    @abc.abstractmethod
    def update(
        self, gradient: list[Array], weights: Weights, state: Any, rate: Array
    ) -> tuple[Weights, Any]:
        """Return weights and state after one step, whose length is multiplied by `rate`."""

    def batch_size(self, objective: Objective) -> int:
        """Return the number of draws in an iteration."""
        if self.num_samples is not None:
            return self.num_samples
        if objective.has_curvature:
            return NUM_SAMPLES_WITH_CURVATURE
        return NUM_SAMPLES_WITHOUT_CURVATURE

    def _num_steps(self, objective: Objective) -> int:
        """Return the number of steps from one evaluation of the target."""
        if not objective.has_curvature:
            return 1
        return NUM_STEPS_ALL_SHARDS if self.data_fraction == 1 else NUM_STEPS_SOME_SHARDS

    def maximize(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> OptimizationResult:
        generator = np.random.default_rng(seed)
        initial, state = weights, self.init(weights)
        size = self.batch_size(objective)
        objective.localize(weights, random_batch(objective, size, generator))
        objective.update_control()
        rate, num_plateaus = 1.0, 0
        values: list[float] = []
        errors: list[float] = []
        while len(values) < self.max_iterations and num_plateaus < MAX_PLATEAUS:
            window = []
            for _ in range(min(WINDOW, self.max_iterations - len(values))):
                local = objective.localize(weights, random_batch(objective, size, generator))
                num_steps = self._num_steps(objective)
                (value, error), weights, state = _move(
                    self, local, num_steps, weights, state, jnp.asarray(rate)
                )
                values.append(float(value))
                errors.append(float(error))
                if not (np.isfinite(values[-1]) and _all_finite(weights)):
                    warning = _not_finite(len(values))
                    return OptimizationResult(
                        initial, np.array(values), np.array(errors), warning, failed=True
                    )
                window.append(weights)
                advance()
            objective.update_control()
            if len(values) >= 2 * WINDOW and not _rises(
                values[-2 * WINDOW : -WINDOW], values[-WINDOW:]
            ):
                num_plateaus += 1
                rate /= PLATEAU_DIVISOR
        mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *window)
        warning = "" if num_plateaus == MAX_PLATEAUS else _unfinished(len(values))
        return OptimizationResult(mean, np.array(values), np.array(errors), warning)


@eqx.filter_jit
def _move(
    optimizer: AbstractGradient,
    local: LocalObjective,
    num_steps: int,
    weights: Weights,
    state: Any,
    rate: Array,
) -> tuple[tuple[Array, Array], Weights, Any]:
    """Return the objective and its error before some steps, and weights and state after them."""

    def step(
        carry: tuple[Weights, Any], _: None
    ) -> tuple[tuple[Weights, Any], tuple[Array, Array]]:
        estimate = local.estimate(carry[0])
        return optimizer.update(estimate.gradient, *carry, rate), (estimate.value, estimate.error)

    (weights, state), (values, errors) = jax.lax.scan(step, (weights, state), length=num_steps)
    return (values[0], errors[0]), weights, state


@jax.jit
def _all_finite(weights: Weights) -> Array:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(part.values)) for part in weights]))


def _unfinished(count: int) -> str:
    return (
        f"the objective had not levelled off after {count} iterations: raise the optimizer's "
        "max_iterations."
    )


def _not_finite(count: int) -> str:
    return (
        f"the objective or its gradient was not finite in iteration {count}, and the initial "
        "weights were kept: either the full-data log density is not finite at some combined draw "
        "(check the model there), or steps were too long (try a smaller learning rate)."
    )


def random_batch(
    objective: Objective, size: int, generator: np.random.Generator
) -> Int[np.ndarray, "point shard"]:
    """Draw indices for each shard separately: shards are independent, so any draws go together."""
    return generator.integers(objective.num_draws, size=(size, objective.num_shards))


def _rises(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether the mean rose by more than the error of the difference."""
    error = np.sqrt(np.var(before, ddof=1) / len(before) + np.var(after, ddof=1) / len(after))
    return bool(np.mean(after) - np.mean(before) > error)
