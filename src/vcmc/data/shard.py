"""A shard, and what a partition is: rows dealt into shards that are loaded where they are needed.

To write a partition, subclass `AbstractPartition` and give it `num_shards` and `load`. One whose shards lie in files, or wherever else any
process can find them, needs nothing more: it travels as it is. One that holds rows says in `part` what must travel.
"""

import abc
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Shard(eqx.Module):
    """Some rows. Those of weight zero are padding, so that shards share a shape and one program."""

    rows: dict[str, Array]
    weights: Float[Array, " row"]

    @property
    def num_rows(self) -> int:
        """Number of rows that are not padding."""
        return int(jnp.sum(self.weights > 0))

    @property
    def num_bytes(self) -> int:
        """Memory that the rows take."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))

    def checksum(self) -> str:
        """The same for the same rows, whoever loads them."""
        found = hashlib.blake2b(digest_size=8)
        for name, array in sorted(self.rows.items()):
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
        found.update(np.ascontiguousarray(self.weights).data)
        return found.hexdigest()


@runtime_checkable
class Shards(Protocol):
    """Several shards, which may be loaded when they are looked at."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Shard]: ...

    def __getitem__(self, shard: int, /) -> Shard: ...


def check_num_shards(num_shards: Any) -> None:
    """Refuse what is not a number of shards."""
    if not isinstance(num_shards, int | np.integer) or num_shards < 1:
        raise ValueError(f"num_shards must be a whole number of 1 or more; got {num_shards!r}.")


def check_loader(load: Any, num_shards: Any, what: str) -> None:
    """Refuse what cannot load the rows or draws of so many shards."""
    if not callable(load):
        raise TypeError(
            f"load must be a function from a shard's number to its {what}; got {type(load).__name__}."
        )
    check_num_shards(num_shards)


def padded(rows: Mapping[str, np.ndarray], length: int) -> Shard:
    """Rows as a shard of some length: copies of the first row, of weight zero, fill it up."""
    count = len(next(iter(rows.values())))

    def fill(array: np.ndarray) -> Array:
        if length == count:
            return jnp.asarray(array)
        return jnp.asarray(np.concatenate([array, np.repeat(array[:1], length - count, axis=0)]))

    weights = np.concatenate([np.ones(count), np.zeros(length - count)])
    return Shard({name: fill(array) for name, array in rows.items()}, jnp.asarray(weights))


def padded_length(size: int, largest: int) -> int:
    """The largest size, halved while that holds: shards of any sizes share few shapes."""
    length = largest
    while length > 1 and -(-length // 2) >= size:
        length = -(-length // 2)
    return length


class AbstractPartition(abc.ABC):
    """Rows dealt into shards. The module's docstring says how to write one."""

    @property
    @abc.abstractmethod
    def num_shards(self) -> int:
        """How many shards there are."""

    @abc.abstractmethod
    def load(self, shard: int) -> Shard:
        """The rows of one shard, padded to a shape that shards share."""

    in_memory: bool = False
    """Whether shards, once loaded, may be kept, as all rows are in memory anyway."""

    def is_small(self, max_bytes: int) -> bool:
        """Whether all shards have one shape, and take no more than so many bytes together; if that is not known, they do not."""
        del max_bytes
        return False

    def part(self, shards: Sequence[int]) -> "AbstractPartition":
        """What must travel so that these shards can be loaded elsewhere: by default the partition, which knows where they are."""
        del shards
        return self

    def has(self, shard: int) -> bool:
        """Whether a shard can be loaded here."""
        return 0 <= shard < self.num_shards


class InMemoryShards(AbstractPartition):
    """Shards that are in memory, or some of them: a part that has travelled."""

    in_memory = True

    def __init__(self, shards: Mapping[int, Shard], num_shards: int):
        self.shards = dict(shards)
        self._num_shards = num_shards

    @property
    def num_shards(self) -> int:
        return self._num_shards

    def load(self, shard: int) -> Shard:
        return self.shards[shard]

    def is_small(self, max_bytes: int) -> bool:
        lengths = {len(shard.weights) for shard in self.shards.values()}
        return (
            len(lengths) == 1
            and sum(shard.num_bytes for shard in self.shards.values()) <= max_bytes
        )

    def part(self, shards: Sequence[int]) -> "InMemoryShards":
        return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)

    def has(self, shard: int) -> bool:
        return shard in self.shards
