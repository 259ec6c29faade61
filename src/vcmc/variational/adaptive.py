"""Optax's methods, e.g. Adam, on free coordinates of the weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jaxtyping import Array

from .optimizer import AbstractGradient, Weights

if TYPE_CHECKING:
    from optax import GradientTransformation


class Adaptive(AbstractGradient):
    """Steps of an Optax method in free coordinates: softmax, or Cholesky factors.

    Args:
        method: a function from a learning rate to an Optax gradient transformation; by default
            `optax.adam`.
        learning_rate: about the relative change of a weight in a step, before steps get shorter.
        num_samples: draws in an iteration; by default 5, or 40 for families without a control
            variate.
        data_fraction: share of the shards whose rows are used in an iteration.
        max_iterations: the largest number of iterations.
    """

    method: "Callable[[float], GradientTransformation] | None" = eqx.field(
        default=None, static=True
    )
    learning_rate: float = 0.2
    num_samples: int | None = None
    data_fraction: float = 1.0
    max_iterations: int = 500

    def __check_init__(self) -> None:
        if self.method is not None and not callable(self.method):
            raise TypeError(
                "method must be a function of a learning rate, e.g. optax.adam (not "
                f"optax.adam(0.1)); got {self.method!r}."
            )

    def init(self, weights: Weights) -> Any:
        free = [part.free() for part in weights]
        return free, self._transformation().init(free)

    def update(
        self, gradient: list[Array], weights: Weights, state: Any, rate: Array
    ) -> tuple[Weights, Any]:
        free, optax_state = state

        def build(free: list[Array]) -> Weights:
            return [part.from_free(values) for part, values in zip(weights, free, strict=True)]

        _, pull_back = jax.vjp(lambda free: [part.values for part in build(free)], free)
        (slopes,) = pull_back(gradient)
        descent = jax.tree.map(lambda slope: -slope, slopes)
        steps, optax_state = self._transformation().update(descent, optax_state, free)
        free = jax.tree.map(lambda value, step: value + rate * step, free, steps)
        return build(free), (free, optax_state)

    def _transformation(self) -> "GradientTransformation":
        import optax  # imported here: it adds to the time of `import vcmc`

        return (self.method or optax.adam)(self.learning_rate)
