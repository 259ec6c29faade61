"""What an optimizer is: a rule that moves weights along noisy gradients, and the climb that it is used in.

A climb goes in windows of iterations. When the objective's mean over a window is no longer above that of the window
before by more than the noise of their difference, steps are made shorter; when that has happened a few
times, it stops. The weights that it returns are the mean over the last window.

To write an optimizer, subclass `AbstractOptimizer` and give it `init` and `update`.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..aggregators.weights import AbstractWeights
from ..objective import Objective

WINDOW = 10  # iterations
SHORTER = 3.0  # by which steps are divided on a plateau
PLATEAUS = 3  # the last of which ends the climb

Weights = list[AbstractWeights]


class Climb(NamedTuple):
    """The weights that a climb ends with, the objective on the way there, and whether it came to an end."""

    weights: Weights
    values: Float[np.ndarray, " iteration"]
    errors: Float[np.ndarray, " iteration"]
    finished: bool


class AbstractOptimizer(eqx.Module):
    """A rule that moves weights along noisy gradients."""

    num_samples: eqx.AbstractVar[int]
    data_fraction: eqx.AbstractVar[float]
    max_iterations: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be 2 or more; got {self.num_samples}.")
        if not 0 < self.data_fraction <= 1:
            raise ValueError(f"data_fraction must lie above 0 and be at most 1; got {self.data_fraction}.")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations must be 1 or more; got {self.max_iterations}.")

    @abc.abstractmethod
    def init(self, weights: Weights) -> Any:
        """What the rule remembers, before the first step."""

    @abc.abstractmethod
    def update(self, gradient: list[Array], weights: Weights, state: Any, rate: Array) -> tuple[Weights, Any]:
        """The weights after a step uphill, whose length is multiplied by `rate`, and what is remembered."""

    def climb(
        self, objective: Objective, weights: Weights, seed: int, advance: Callable[[], None] = lambda: None
    ) -> Climb:
        """Raise an objective until it stops rising by more than its noise."""
        generator = np.random.default_rng(seed)
        state = self.init(weights)
        rate = 1.0
        num_plateaus = 0
        values: list[float] = []
        errors: list[float] = []
        size = min(self.num_samples, objective.num_draws)
        while len(values) < self.max_iterations and num_plateaus < PLATEAUS:
            visited = []
            for _ in range(WINDOW):
                estimate = objective(weights, generator.choice(objective.num_draws, size, replace=False))
                values.append(float(estimate.value))
                errors.append(float(estimate.error))
                weights, state = _update(self, estimate.gradient, weights, state, np.asarray(rate))
                visited.append(weights)
                advance()
            if len(values) > WINDOW and not _rises(np.array(values)):
                num_plateaus += 1
                rate /= SHORTER
        mean = jax.tree.map(lambda *each: sum(each) / len(each), *visited)
        return Climb(mean, np.array(values), np.array(errors), num_plateaus == PLATEAUS)


@eqx.filter_jit
def _update(
    optimizer: AbstractOptimizer, gradient: list[Array], weights: Weights, state: Any, rate: Array
) -> tuple[Weights, Any]:
    return optimizer.update(gradient, weights, state, rate)


def _rises(values: Float[np.ndarray, " iteration"]) -> bool:
    """Whether the last window's mean is above that of the window before by more than its noise."""
    before, last = values[-2 * WINDOW : -WINDOW], values[-WINDOW:]
    noise = np.sqrt((before.var(ddof=1) + last.var(ddof=1)) / WINDOW)
    return bool(last.mean() - before.mean() > noise)
