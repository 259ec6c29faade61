"""Shards, and partitions of rows into shards that are loaded where they are needed.

To write a partition, subclass `AbstractPartition` and define `num_shards` and `load`. A partition
whose shards lie in files, or anywhere that every process can read, needs no more: it is sent to
other processes as it is. A partition that holds rows defines in `subset` the part to send.
"""

import abc
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .tiles import Groups, joined_groups


class Shard(eqx.Module):
    """Some rows. Rows of weight zero are padding, so that shards share a shape and a program.

    Weights multiply log likelihoods: they are one, unless the user has given others.

    Where the model has local parameters, rows are laid out by `groups`, which are whole.
    """

    rows: dict[str, Array]
    weights: Float[Array, " row"]
    groups: Groups | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows without padding."""
        return int(np.count_nonzero(np.asarray(self.weights) > 0))

    @property
    def num_bytes(self) -> int:
        """Memory of the rows."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self))

    def powered(self, power: float) -> "Shard":
        """Return the shard whose likelihood is raised to a power."""
        if self.groups is None:
            return Shard(self.rows, power * self.weights)
        return Shard(self.rows, self.weights, self.groups.powered(power))

    def checksum(self) -> str:
        """Return a hash of the rows and weights, the same in every process."""
        digest = hashlib.blake2b(digest_size=8)
        for name, array in sorted(self.rows.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update(np.ascontiguousarray(self.weights).data)
        if self.groups is not None:
            digest.update(np.ascontiguousarray(self.groups.of_tile).data)
        return digest.hexdigest()


def joined(shards: Sequence[Shard]) -> Shard:
    """Return the rows of several shards of one shape as one shard."""
    plain = [Shard(shard.rows, shard.weights) for shard in shards]
    joint = jax.tree.map(lambda *leaves: jax.device_put(np.concatenate(leaves)), *plain)
    groups = [shard.groups for shard in shards if shard.groups is not None]
    return Shard(joint.rows, joint.weights, joined_groups(groups) if groups else None)


@runtime_checkable
class Shards(Protocol):
    """A sequence of shards, which may be loaded when they are indexed."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Shard]: ...

    def __getitem__(self, shard: int, /) -> Shard: ...


def check_num_shards(num_shards: Any) -> None:
    """Refuse a number of shards that is not a positive integer."""
    if not isinstance(num_shards, int | np.integer) or num_shards < 1:
        raise ValueError(
            f"num_shards must be an integer of at least 1, e.g. num_shards=20; got {num_shards!r}."
        )


def check_loader(load: Any, num_shards: Any, contents: str) -> None:
    """Refuse arguments that cannot load the `contents` (rows, draws) of each shard."""
    if not callable(load):
        raise TypeError(
            f"load must be a function from a shard's number to its {contents}; "
            f"got {type(load).__name__}."
        )
    check_num_shards(num_shards)


def padded(rows: Mapping[str, np.ndarray], length: int) -> Shard:
    """Return rows as a shard of the given length, padded with copies of the first row."""
    count = len(next(iter(rows.values())))

    def pad(array: np.ndarray) -> Array:
        if length == count:
            return jax.device_put(array)  # jnp.asarray would compile a program for every shape
        padding = np.repeat(array[:1], length - count, axis=0)
        return jax.device_put(np.concatenate([array, padding]))

    weights = np.concatenate([np.ones(count), np.zeros(length - count)])
    return Shard({name: pad(array) for name, array in rows.items()}, jax.device_put(weights))


def padded_length(size: int, largest: int) -> int:
    """Halve the largest size while `size` still fits: shards of any sizes share few shapes."""
    length = largest
    while length > 1 and -(-length // 2) >= size:
        length = -(-length // 2)
    return length


class AbstractPartition(abc.ABC):
    """A partition of rows into shards. The module's docstring says how to write one."""

    @property
    @abc.abstractmethod
    def num_shards(self) -> int:
        """Number of shards."""

    @abc.abstractmethod
    def load(self, shard: int) -> Shard:
        """Return the rows of one shard, padded to a shape that shards share."""

    in_memory: bool = False
    """Whether loaded shards may all be cached, as all rows are in memory anyway."""

    max_kept_bytes: int = 0
    """Bytes of loaded shards that are kept for the next task, if more than by default."""

    levels: Mapping[str, np.ndarray] = MappingProxyType({})
    """Levels of those columns that were text, and hold their numbers."""

    is_weighted: bool = False
    """Whether rows have weights of their own, which not all samplers take."""

    def is_small(self, max_bytes: int) -> bool:
        """Return whether all shards have one shape and at most `max_bytes` in all, if known."""
        del max_bytes
        return False

    @property
    def uneven_counts(self) -> Sequence[int] | None:
        """The numbers of rows of shards that may differ in shape; None if not, or unknown."""
        return None

    def subset(self, shards: Sequence[int]) -> "AbstractPartition":
        """Return the partition to send to a process that works on these shards.

        By default it is the whole partition, for shards that every process can load.
        """
        del shards
        return self

    def has(self, shard: int) -> bool:
        """Return whether a shard can be loaded in this process."""
        return 0 <= shard < self.num_shards


class InMemoryShards(AbstractPartition):
    """Shards in memory: all of a partition, or those that were sent to this process."""

    in_memory = True

    def __init__(self, shards: Mapping[int, Shard], num_shards: int):
        self._shards = dict(shards)
        self._num_shards = num_shards

    @property
    def num_shards(self) -> int:
        return self._num_shards

    def add(self, other: "InMemoryShards") -> None:
        """Add the shards of another subset of the same partition."""
        self._shards.update(other._shards)

    def load(self, shard: int) -> Shard:
        return self._shards[shard]

    def is_small(self, max_bytes: int) -> bool:
        lengths = {len(shard.weights) for shard in self._shards.values()}
        num_bytes = sum(shard.num_bytes for shard in self._shards.values())
        return len(lengths) == 1 and num_bytes <= max_bytes

    def subset(self, shards: Sequence[int]) -> "InMemoryShards":
        return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)

    def has(self, shard: int) -> bool:
        return shard in self._shards
