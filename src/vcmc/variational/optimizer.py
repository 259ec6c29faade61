"""What an optimizer is: a rule that moves weights along noisy gradients, and the climb that it is used in.

A climb goes in windows of iterations. When the objective's mean over a window is no longer above that of the window
before by more than the noise of their difference, steps are made shorter; when that happens a second time, it
stops. The weights that it returns are the mean over the last window.

To write an optimizer that follows gradients, subclass `AbstractGradient` and give it `init` and `update`.
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
from .objective import Local, Objective

WINDOW = 4  # iterations
SHORTER = 3.0  # by which steps are divided on a plateau
PLATEAUS = 2  # the last of which ends the climb
NUM_SAMPLES, NUM_SAMPLES_UNBENT = (
    5,
    40,
)  # draws in an iteration, with and without a hill (the paper's number)
NUM_STEPS_IN_PART = 2
NUM_STEPS = 16  # from one evaluation of the target, where its curvature is known about

Weights = list[AbstractWeights]


class Climb(NamedTuple):
    """The weights that a climb ends with, the objective on the way there, and what was wrong with it, if anything.

    A broken climb ends with the weights that it began with.
    """

    weights: Weights
    values: Float[np.ndarray, " iteration"]
    errors: Float[np.ndarray, " iteration"]
    trouble: str = ""
    broken: bool = False


class AbstractOptimizer(eqx.Module):
    """A way to raise the objective."""

    @abc.abstractmethod
    def climb(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> Climb:
        """Raise an objective until it stops rising by more than its noise."""


def check_counts(num_samples: int | None, max_iterations: int) -> None:
    """Raise an error unless there are draws to estimate a noise from, and an iteration."""
    if num_samples is not None and num_samples < 2:
        raise ValueError(f"num_samples must be 2 or more; got {num_samples}.")
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be 1 or more; got {max_iterations}.")


class AbstractGradient(AbstractOptimizer):
    """A rule that moves weights along noisy gradients."""

    num_samples: eqx.AbstractVar[int | None]
    data_fraction: eqx.AbstractVar[float]
    max_iterations: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        check_counts(self.num_samples, self.max_iterations)
        if not 0 < self.data_fraction <= 1:
            raise ValueError(
                f"data_fraction must lie above 0 and be at most 1; got {self.data_fraction}."
            )

    @abc.abstractmethod
    def init(self, weights: Weights) -> Any:
        """What the rule remembers, before the first step."""

    @abc.abstractmethod
    def update(
        self, gradient: list[Array], weights: Weights, state: Any, rate: Array
    ) -> tuple[Weights, Any]:
        """The weights after a step uphill, whose length is multiplied by `rate`, and what is remembered."""

    def batch_size(self, objective: Objective) -> int:
        """Draws in every iteration."""
        return self.num_samples or (NUM_SAMPLES if objective.is_bent else NUM_SAMPLES_UNBENT)

    def _num_steps(self, objective: Objective) -> int:
        """Steps from one evaluation: few where it saw few rows, whose noise it would follow."""
        if not objective.is_bent:
            return 1
        return NUM_STEPS if self.data_fraction == 1 else NUM_STEPS_IN_PART

    def climb(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> Climb:
        """Raise an objective until it stops rising by more than its noise."""
        generator = np.random.default_rng(seed)
        start = weights
        state = self.init(weights)
        size = self.batch_size(objective)
        objective.near(weights, random_batch(objective, size, generator))
        objective.learn()
        rate = 1.0
        num_plateaus = 0
        values: list[float] = []
        errors: list[float] = []
        while len(values) < self.max_iterations and num_plateaus < PLATEAUS:
            visited = []
            for _ in range(min(WINDOW, self.max_iterations - len(values))):
                local = objective.near(weights, random_batch(objective, size, generator))
                num_steps = self._num_steps(objective)
                (value, error), weights, state = _move(
                    self, local, num_steps, weights, state, jnp.asarray(rate)
                )
                values.append(float(value))
                errors.append(float(error))
                if not (np.isfinite(values[-1]) and _all_finite(weights)):
                    return Climb(
                        start, np.array(values), np.array(errors), _not_finite(len(values)), True
                    )
                visited.append(weights)
                advance()
            objective.learn()
            if len(values) >= 2 * WINDOW and not _rises(
                values[-2 * WINDOW : -WINDOW], values[-WINDOW:]
            ):
                num_plateaus += 1
                rate /= SHORTER
        mean = jax.tree.map(lambda *each: sum(each) / len(each), *visited)
        trouble = "" if num_plateaus == PLATEAUS else _unfinished(len(values))
        return Climb(mean, np.array(values), np.array(errors), trouble)


@eqx.filter_jit
def _move(
    optimizer: AbstractGradient,
    local: Local,
    num_steps: int,
    weights: Weights,
    state: Any,
    rate: Array,
) -> tuple[tuple[Array, Array], Weights, Any]:
    """The objective and its error before some steps, and the weights and the state after them."""

    def step(
        carried: tuple[Weights, Any], _: None
    ) -> tuple[tuple[Weights, Any], tuple[Array, Array]]:
        estimate = local.estimate(carried[0])
        return optimizer.update(estimate.gradient, *carried, rate), (estimate.value, estimate.error)

    (weights, state), (values, errors) = jax.lax.scan(step, (weights, state), length=num_steps)
    return (values[0], errors[0]), weights, state


@jax.jit
def _all_finite(weights: Weights) -> Array:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(part.values)) for part in weights]))


def _unfinished(count: int) -> str:
    return f"the objective had not levelled off after {count} iterations: raise the optimizer's max_iterations."


def _not_finite(count: int) -> str:
    return (
        f"the objective or its gradient was not finite in iteration {count}, and the weights before it were kept: either "
        "the full-data log density is not finite at some combined draw (look at the model there), or steps were too "
        "long (try a smaller learning rate)."
    )


def random_batch(
    objective: Objective, size: int, generator: np.random.Generator
) -> Int[np.ndarray, "point shard"]:
    """Numbers of draws, chosen in every shard by itself: shards are independent, so that any draws go together."""
    return generator.integers(objective.num_draws, size=(size, objective.num_shards))


def _rises(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the mean of later values is above that of earlier ones by more than the error of the difference."""
    error = np.sqrt(np.var(before, ddof=1) / len(before) + np.var(after, ddof=1) / len(after))
    return bool(np.mean(after) - np.mean(before) > error)
