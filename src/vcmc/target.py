r"""The full-data target: log density and score of points, summed over shards.

$$\log p(u \mid X) = \sum_k \ell_k(u) + \text{const}, \qquad \tau = 1/K.$$

Whoever holds a `Target` sees points, log densities and scores, and never a row.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float

from .model import Model, Subposterior, evaluate
from .partition import Shard

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class Mapper(Protocol):
    """Anything that maps a function over items, in order: the executor that the target runs on."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]: ...


class Target:
    """The full log density of a model, evaluated shard by shard on an executor."""

    def __init__(self, model: Model, shards: Sequence[Shard], executor: Mapper):
        power = jnp.asarray(1 / len(shards))
        self.densities = [Subposterior(model, shard, power) for shard in shards]
        self.executor = executor

    def __call__(
        self, points: Float[Array, "point dim"]
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Log densities and scores at a batch of points."""
        parts = list(self.executor.map(lambda density: evaluate(density, points), self.densities))
        log_densities, scores = zip(*parts, strict=True)
        return sum(log_densities), sum(scores)
