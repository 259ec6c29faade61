"""What a combiner is: a method from the shards' draws to posterior draws.

To write one, subclass `AbstractCombiner`, say in `needs` what it needs, and give it a `combine` that takes what is known of at least
two shards. `vcmc.testing.check_combiner` has the laws that it must keep, and `docs/extending.md` an example. One of ours goes into the registry of
`tests/combiners/test_laws.py`, and its paper to the top of its file: the table in `docs/combiners.md` is made from both.
"""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..space import Product
from ..target import Target

Prior = Literal["subposterior", "partial", "powered"]
"""What shards hold besides their rows: the prior to the power 1/K; all of it; or all of it, and their likelihood to the power K."""


class Needs(NamedTuple):
    """What a combiner needs.

    Attributes:
        target: the full-data log density.
        scores: its gradient.
        prior: what the shards must hold.
        streams: it reads the shards one after the other, and never holds the draws of all.
    """

    target: bool = False
    scores: bool = False
    prior: Prior = "subposterior"
    streams: bool = False


@runtime_checkable
class ByShard(Protocol):
    """Draws of one shard after the other, which may be loaded when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, shard: int, /) -> Any: ...


def evenly(draws: Float[np.ndarray, "draw dim"], count: int) -> Float[np.ndarray, "count dim"]:
    """So many of the draws, in order and at even distances, or each repeated as often as the others, up to one."""
    return draws[np.arange(count) * len(draws) // count]


@dataclass(frozen=True)
class Subposteriors:
    """What a combiner is given: the shards' draws as points, and what is known besides.

    Attributes:
        draws: the draws of every shard, as points (draw, dim): an array (shard, draw, dim) where all have as many, else a sequence.
        space: where the parameters live.
        target: the full-data target, if rows are at hand.
        seed: seed of what is random in the combiner.
        advance: to be called after a step of long work.
        learned: what the combiner returned as `learned` from other draws of the same shards, to start from.
    """

    draws: Float[Array, "shard draw dim"] | ByShard
    space: Product
    target: Target | None = None
    seed: int = 0
    advance: Callable[[], None] = lambda: None
    learned: Any = None

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return len(self.draws)

    def __iter__(self) -> Iterator[Float[np.ndarray, "draw dim"]]:
        """The draws of one shard after the other."""
        draws = (
            np.asarray(self.draws) if isinstance(self.draws, Array) else self.draws
        )  # it has no copy made
        for shard in range(self.num_shards):
            yield np.asarray(draws[shard])

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many draws every shard has; draws that are loaded may know it before."""
        if isinstance(self.draws, Array):
            return (self.draws.shape[1],) * self.num_shards
        return getattr(self.draws, "counts", None) or tuple(len(draws) for draws in self)

    @property
    def num_draws(self) -> int:
        """How many draws are made of them: as many as the shard with the most has."""
        return max(self.counts)

    def stretched(self, draws: Float[np.ndarray, "draw dim"]) -> Float[np.ndarray, "many dim"]:
        """One shard's draws, repeated evenly until there are as many as in the shard with the most."""
        return draws if len(draws) == self.num_draws else evenly(draws, self.num_draws)

    @cached_property
    def stacked(self) -> Float[Array, "shard draw dim"]:
        """The draws of all shards as one array; where some have fewer, these are repeated evenly."""
        if isinstance(self.draws, Array):
            return self.draws
        return jnp.asarray(np.stack([self.stretched(draws) for draws in self]))


@dataclass(frozen=True)
class Combined:
    """What a combiner returns: posterior draws as points, and what it found out on the way.

    Attributes:
        draws: posterior draws.
        weights: the weight of every shard for every coordinate, if draws are averages.
        trace: numbers by iteration, if there was an optimisation.
        notes: what looks doubtful, in words.
        learned: what it would start from, were it given more draws of the same shards.
    """

    draws: Float[Array, "draw dim"]
    weights: Float[Array, "shard dim"] | None = None
    trace: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    learned: Any = None


class AbstractCombiner(eqx.Module):
    """A method from the shards' draws to posterior draws, all as points."""

    needs: ClassVar[Needs] = Needs()

    def check(self, space: Product) -> None:
        """Raise an error if the combiner is not for this space; called before shards are sampled."""
        del space

    def __call__(self, shards: Subposteriors) -> Combined:
        """Posterior draws; the draws of a single shard are left as they are."""
        if self.needs.target and shards.target is None:
            raise ValueError(
                f"{type(self).__name__} needs the full-data log density, and there are no rows to compute it from. Give "
                "combine a model and its rows: vcmc.combine(draws, combiner=..., model=model, rows=rows)."
            )
        if shards.num_shards == 1:
            return Combined(jnp.asarray(shards.draws[0]), jnp.ones((1, shards.space.dim)))
        return self.combine(shards)

    @abc.abstractmethod
    def combine(self, shards: Subposteriors) -> Combined:
        """Posterior draws from those of two shards or more."""
