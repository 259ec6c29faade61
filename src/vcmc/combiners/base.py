"""What a combiner is: a method from the shards' draws to posterior draws.

To write one, subclass `AbstractCombiner` and give it a `__call__` that takes what is known of the shards. The laws
that it must keep are in `tests/combiners/test_laws.py`; add it to the registry there.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..space import Product
from ..target import Target


@dataclass(frozen=True)
class Subposteriors:
    """What a combiner is given: the shards' draws as points, and what is known besides.

    Attributes:
        draws: draws of all shards, as points.
        space: where the parameters live.
        target: the full-data target, if rows are at hand.
        seed: seed of what is random in the combiner.
        advance: to be called after a step of long work.
    """

    draws: Float[Array, "shard draw dim"]
    space: Product
    target: Target | None = None
    seed: int = 0
    advance: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Combined:
    """What a combiner returns: posterior draws as points, and what it found out on the way.

    Attributes:
        draws: posterior draws.
        weights: the weight of every shard for every coordinate, if draws are averages.
        trace: numbers by iteration, if there was an optimisation.
        notes: what looks doubtful, in words.
    """

    draws: Float[Array, "draw dim"]
    weights: Float[Array, "shard dim"] | None = None
    trace: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class AbstractCombiner(eqx.Module):
    """A method from the shards' draws to posterior draws, all as points."""

    needs_target: ClassVar[bool] = False
    """Whether the rows must be at hand, for the full-data log density."""

    def check(self, space: Product) -> None:
        """Raise an error if the combiner is not for this space; called before shards are sampled."""
        del space

    @abc.abstractmethod
    def __call__(self, shards: Subposteriors) -> Combined:
        """Posterior draws."""
