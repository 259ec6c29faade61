r"""Projected stochastic gradients, as in the paper.

$$W \leftarrow \Pi\bigl(W + \gamma_t \, \nabla \mathcal L(W)\bigr).$$

The paper does not report its step sizes. Gradients grow with the number of rows and shards, so no
constant fits all problems. By default, steps are those of AdaGrad for a known radius (Duchi, Hazan
and Singer, 2011; Streeter and McMahan, 2010): the radius over the root of the sum of all squared
gradients so far. The radius, $1 / \sqrt K$, is that of changing all uniform weights by
themselves. Only the component of a gradient that keeps the weights' sum counts, as the projection
undoes the other one.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..linalg.shrinkage import TINY
from .optimizer import AbstractGradient, Weights


class ProjectedGradient(AbstractGradient):
    """Steps along the gradient, each projected onto the weights that add up to one.

    Args:
        num_samples: draws in an iteration.
        step: a function from a step's number to its length, e.g. an Optax schedule; by default
            AdaGrad's. Families with a control variate make several steps in an iteration.
        data_fraction: share of the shards whose rows are used in an iteration.
        max_iterations: the largest number of iterations.
    """

    num_samples: int = 40
    step: Callable[[Any], Any] | None = eqx.field(default=None, static=True)
    data_fraction: float = 1.0
    max_iterations: int = 500

    def __check_init__(self) -> None:
        if self.step is not None and not callable(self.step):
            raise TypeError(
                f"step must be a schedule, e.g. optax.constant_schedule(0.1); got {self.step!r}."
            )

    def init(self, weights: Weights) -> tuple[Array, list[Array]]:
        return jnp.zeros((), int), [jnp.zeros_like(_square(part.values)) for part in weights]

    def update(
        self, gradient: list[Array], weights: Weights, state: tuple[Array, list[Array]], rate: Array
    ) -> tuple[Weights, tuple[Array, list[Array]]]:
        count, squares = state
        tangents = [part - part.mean(axis=0) for part in gradient]
        squares = [square + _square(part) for square, part in zip(squares, tangents, strict=True)]
        projected = []
        for part, square, tangent in zip(weights, squares, tangents, strict=True):
            radius = jnp.sqrt(tangent.shape[1] / square.size / tangent.shape[0])
            length = radius / jnp.sqrt(square + TINY) if self.step is None else self.step(count)
            values = part.values + rate * length * tangent
            projected.append(eqx.tree_at(lambda weights: weights.values, part, values).project())
        return projected, (count + 1, squares)


def _square(values: Array) -> Array:
    """Return squared norms: one per coordinate for diagonal weights, one for all matrices."""
    return jnp.sum(values**2, axis=0) if values.ndim == 2 else jnp.sum(values**2)
