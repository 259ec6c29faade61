"""Optax's methods, such as Adam, on free coordinates of the weights."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import optax
from jaxtyping import Array

from .base import AbstractOptimizer, Weights


class Adaptive(AbstractOptimizer):
    """Steps of an Optax method in coordinates that always stand for weights: softmax, or Cholesky factors.

    Args:
        method: from a learning rate to an Optax gradient transformation, such as `optax.adam`.
        learning_rate: about the relative change of a weight in an iteration, until steps are made shorter.
        num_samples: draws in every iteration.
        data_fraction: share of the shards whose rows are used in an iteration.
        max_iterations: iterations at most.
    """

    method: Callable[[float], optax.GradientTransformation] = eqx.field(default=optax.adam, static=True)
    learning_rate: float = 0.2
    num_samples: int = 5
    data_fraction: float = 1.0
    max_iterations: int = 500

    def init(self, weights: Weights) -> Any:
        free = [part.free() for part in weights]
        return free, self.method(self.learning_rate).init(free)

    def update(self, gradient: list[Array], weights: Weights, state: Any, rate: Array) -> tuple[Weights, Any]:
        free, memory = state

        def build(free: list[Array]) -> Weights:
            return [part.from_free(values) for part, values in zip(weights, free, strict=True)]

        _, pull_back = jax.vjp(lambda free: [part.values for part in build(free)], free)
        (slopes,) = pull_back(gradient)
        steps, memory = self.method(self.learning_rate).update(jax.tree.map(lambda slope: -slope, slopes), memory, free)
        free = jax.tree.map(lambda value, step: value + rate * step, free, steps)
        return build(free), (free, memory)
