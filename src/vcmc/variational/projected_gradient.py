r"""Projected stochastic gradients, as in the paper.

$$W \leftarrow \Pi\bigl(W + \gamma_t \, \nabla \mathcal L(W)\bigr).$$

The paper does not say its step sizes. Gradients grow with the number of rows and shards, so that no constant fits all; unless a
schedule is given, steps are those of AdaGrad for a known radius (Duchi, Hazan and Singer, 2011; Streeter and McMahan, 2010): the
radius over the root of the sum of all squared gradients so far. The radius is that of changing all uniform weights by
themselves, $1 / \sqrt K$. Only the part of a gradient that keeps the weights' sum counts, as the projection undoes the rest.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .optimizer import AbstractGradient, Weights

TINY = 1e-300


class ProjectedGradient(AbstractGradient):
    """Steps along the gradient, each projected onto the weights that add up to one.

    Args:
        num_samples: draws in every iteration.
        step: a step's length by its number, such as an Optax schedule; by default AdaGrad's. From one iteration's evaluation
            several steps are made where the target's curvature is known about.
        data_fraction: share of the shards whose rows are used in an iteration.
        max_iterations: iterations at most.
    """

    num_samples: int = 40
    step: Callable[[Any], Any] | None = eqx.field(default=None, static=True)
    data_fraction: float = 1.0
    max_iterations: int = 500

    def __check_init__(self) -> None:
        if self.step is not None and not callable(self.step):
            raise TypeError(
                f"step must be a schedule, such as optax.constant_schedule(0.1); got {self.step!r}."
            )

    def init(self, weights: Weights) -> tuple[Array, list[Array]]:
        return jnp.zeros((), int), [jnp.zeros_like(_square(part.values)) for part in weights]

    def update(
        self, gradient: list[Array], weights: Weights, state: tuple[Array, list[Array]], rate: Array
    ) -> tuple[Weights, tuple[Array, list[Array]]]:
        count, squares = state
        tangents = [part - part.mean(axis=0) for part in gradient]
        squares = [square + _square(part) for square, part in zip(squares, tangents, strict=True)]
        moved = []
        for part, square, tangent in zip(weights, squares, tangents, strict=True):
            radius = jnp.sqrt(tangent.shape[1] / square.size / tangent.shape[0])
            length = radius / jnp.sqrt(square + TINY) if self.step is None else self.step(count)
            moved.append(
                eqx.tree_at(
                    lambda it: it.values, part, part.values + rate * length * tangent
                ).project()
            )
        return moved, (count + 1, squares)


def _square(values: Array) -> Array:
    """Squared lengths: of weights, coordinate by coordinate, as each is projected by itself; of matrices, at once."""
    return jnp.sum(values**2, axis=0) if values.ndim == 2 else jnp.sum(values**2)
