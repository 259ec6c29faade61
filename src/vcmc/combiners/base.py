"""The interface of combiners: methods from the shards' draws to posterior draws.

To write one, subclass `AbstractCombiner`, declare its requirements in `needs`, and implement
`combine` for two or more shards. `vcmc.testing.check_combiner` checks the laws that it must obey;
`docs/extending.md` has an example. A combiner of this package is registered in
`tests/combiners/test_laws.py` and cites its paper at the top of its file: the table in
`docs/combiners.md` is generated from these.
"""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg.pairing import shard_pairs
from ..space import Product
from ..target import Target

Prior = Literal["subposterior", "partial", "powered"]
"""The density of a shard: with the prior to the power 1/K, with the full prior, or with the full
prior and the shard's likelihood to the power K."""


class Needs(NamedTuple):
    """The requirements of a combiner.

    Attributes:
        target: it evaluates the full-data log density.
        scores: it evaluates the gradient of the full-data log density.
        prior: the density that the shards' draws must have.
        streams: it reads the shards one by one, and never holds the draws of all.
    """

    target: bool = False
    scores: bool = False
    prior: Prior = "subposterior"
    streams: bool = False


@runtime_checkable
class ByShard(Protocol):
    """A sequence of the shards' draws, which may be loaded on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, shard: int, /) -> Any: ...


def repeat_evenly(
    draws: Float[np.ndarray, "draw dim"], count: int
) -> Float[np.ndarray, "count dim"]:
    """Return `count` evenly spaced draws in order, repeated evenly if there are fewer."""
    return draws[np.arange(count) * len(draws) // count]


@dataclass(frozen=True)
class Subposteriors:
    """The input of a combiner: the shards' draws as points, and the context.

    Attributes:
        draws: draws of every shard as points (draw, dim): an array (shard, draw, dim) if all shards
            have equally many, else a sequence.
        space: the space of the parameters.
        target: the full-data target, if the rows are available.
        seed: seed of the combiner's randomness.
        advance: callback after each step of long work, for progress bars.
        learned: the combiner's `Combined.learned` from other draws of the same shards, to start
            from.
        num_posterior_draws: number of combined draws; by default that of the shard with the most
            draws.
    """

    draws: Float[Array, "shard draw dim"] | ByShard
    space: Product
    target: Target | None = None
    seed: int = 0
    advance: Callable[[], None] = lambda: None
    learned: Any = None
    num_posterior_draws: int | None = None

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.draws)

    def __iter__(self) -> Iterator[Float[np.ndarray, "draw dim"]]:
        """Iterate over the draws of each shard."""
        # NumPy's view of a JAX array copies nothing.
        draws = np.asarray(self.draws) if isinstance(self.draws, Array) else self.draws
        for shard in range(self.num_shards):
            yield np.asarray(draws[shard])

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of draws of each shard; sequences that know it are not loaded for it."""
        if isinstance(self.draws, Array):
            return (self.draws.shape[1],) * self.num_shards
        return getattr(self.draws, "counts", None) or tuple(len(draws) for draws in self)

    @property
    def num_draws(self) -> int:
        """Number of combined draws."""
        return self.num_posterior_draws or max(self.counts)

    @cached_property
    def pairs(self) -> Int[np.ndarray, "shard draw"]:
        """Which draw of each shard goes into each combined draw (`linalg/pairing.py`)."""
        return shard_pairs(self.counts, self.num_draws, self.seed)

    @cached_property
    def stacked(self) -> Float[Array, "shard draw dim"]:
        """The draws of all shards as one array, those of smaller shards repeated evenly."""
        if isinstance(self.draws, Array):
            return self.draws
        most = max(self.counts)
        return jnp.asarray(np.stack([repeat_evenly(draws, most) for draws in self]))

    @cached_property
    def stacked_pairs(self) -> Int[np.ndarray, "shard draw"]:
        """The same as indices of `stacked`."""
        counts = np.array(self.counts)[:, None]
        return -(-self.pairs * counts.max() // counts)


@dataclass(frozen=True)
class Combined:
    """The output of a combiner.

    Attributes:
        draws: posterior draws as points.
        weights: weights of the shards for each coordinate, if the draws are averages.
        pairs: which draw of each shard went into each combined draw, if one of each did.
        trace: statistics by iteration, if there was an optimization.
        notes: warnings, each a sentence or two.
        learned: the state to start from if more draws of the same shards are combined.
    """

    draws: Float[Array, "draw dim"]
    weights: Float[Array, "shard dim"] | None = None
    trace: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    learned: Any = None
    pairs: Int[np.ndarray, "shard draw"] | None = None
    exact: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


class AbstractCombiner(eqx.Module):
    """A method from the shards' draws to posterior draws, both as points."""

    needs: ClassVar[Needs] = Needs()

    def check(self, space: Product) -> None:
        """Raise an error if the combiner does not support the space; called before sampling."""
        del space

    def __call__(self, shards: Subposteriors) -> Combined:
        """Combine the shards' draws; those of a single shard are returned unchanged."""
        if self.needs.target and shards.target is None:
            raise ValueError(
                f"{type(self).__name__} needs the full-data log density, but there are no rows to "
                "compute it from. Pass the model and its rows: "
                "vcmc.combine(draws, combiner=..., model=model, rows=rows)."
            )
        if shards.num_shards == 1:
            return Combined(jnp.asarray(shards.draws[0]), jnp.ones((1, shards.space.dim)))
        return self.combine(shards)

    @abc.abstractmethod
    def combine(self, shards: Subposteriors) -> Combined:
        """Combine the draws of two or more shards."""
