"""Shards of several partitions as one partition: batches of rows that came one after the other.

Shards are padded to few lengths, which do not depend on the other shards, so that the programs that
were compiled for one batch serve the next.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..model import MAX_CACHED_BYTES
from .grouped import GroupedPartition
from .shard import AbstractPartition, InMemoryShards, Shard, padded
from .shard_files import rows_of
from .weighted import weighted

WEIGHT_BYTES = 8  # of a row
LENGTHS_PER_DOUBLING_BITS = 3  # lengths are multiples of 1/4 to 1/8 of a shard's rows


class BatchShard(NamedTuple):
    """A shard of a batch of rows.

    Attributes:
        partition: the batch's partition, without weights and groups.
        number: the shard's number in it.
        labels: of a model with groups, the labels of the numbers in the column of groups.
    """

    partition: AbstractPartition
    number: int
    labels: np.ndarray | None = None


class ShardList(AbstractPartition):
    """Shards of several partitions, in an order; up to 1 GB of them are read from files once.

    Args:
        shards: the shards.
        group_column: the column of groups, whose numbers are made those of `labels`.
        labels: the labels of all groups, in increasing order.
    """

    max_kept_bytes = 2**30

    def __init__(
        self,
        shards: Sequence[BatchShard],
        group_column: str | None = None,
        labels: np.ndarray | None = None,
    ):
        self.shards = tuple(shards)
        self.group_column = group_column
        self.labels = labels

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        """Whether loaded shards may all be cached."""
        return any(shard.partition.in_memory for shard in self.shards)

    @property
    def num_shards(self) -> int:
        return len(self.shards)

    def load(self, shard: int) -> Shard:
        part = self.shards[shard]
        rows = rows_of(part.partition.load(part.number))
        if self.group_column is not None and part.labels is not None:
            numbers = np.searchsorted(self.labels, part.labels)  # type: ignore[arg-type]
            rows[self.group_column] = numbers[rows[self.group_column]]
        count = len(next(iter(rows.values())))
        num_bytes = sum(array.nbytes for array in rows.values())
        return padded(rows, padded_to(count, num_bytes // max(1, count) + WEIGHT_BYTES))

    @property
    def uneven_counts(self) -> Sequence[int] | None:
        sizes = [getattr(shard.partition, "sizes", None) for shard in self.shards]
        if None in sizes:
            return None
        counts = [
            size[shard.number]  # type: ignore[index]
            for size, shard in zip(sizes, self.shards, strict=True)
        ]
        return counts if len(counts) > 1 else None

    def subset(self, shards: Sequence[int]) -> AbstractPartition:
        if self.in_memory:
            return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)
        return self


def padded_to(count: int, row_bytes: int = 0) -> int:
    """Return the length of a shard with padding; a core's cache holds it if it holds the rows.

    >>> [padded_to(count) for count in (3, 9, 1000, 1025)]
    [3, 10, 1024, 1280]
    >>> padded_to(1025, row_bytes=2000)
    1048

    Args:
        count: the number of rows.
        row_bytes: the memory of a row, with its weight.
    """
    step = 1 << max(0, count.bit_length() - LENGTHS_PER_DOUBLING_BITS)
    length = -(-count // step) * step
    largest = MAX_CACHED_BYTES // max(1, row_bytes)
    return min(length, largest) if count <= largest else length


def union_of_labels(
    shards: Sequence[BatchShard], table: dict[str, np.ndarray] | None, column: str
) -> np.ndarray:
    """Return the labels of all groups of some shards, or those of the table of groups."""
    if table is not None:
        return np.asarray(table[column])
    unique = {id(shard.labels): shard.labels for shard in shards}
    return np.unique(np.concatenate([np.asarray(labels) for labels in unique.values()]))


def batches_partition(
    shards: Sequence[BatchShard],
    weight_column: str | None = None,
    group_column: str | None = None,
    labels: np.ndarray | None = None,
    table: dict[str, np.ndarray] | None = None,
) -> AbstractPartition:
    """Return shards as a partition, with the weights of rows and the groups of a model.

    Args:
        shards: the shards.
        weight_column: the column with the weights of rows.
        group_column: the column of groups.
        labels: the labels of all groups.
        table: arrays with one entry per group.
    """
    partition: AbstractPartition = ShardList(shards, group_column, labels)
    if group_column is not None:
        partition = GroupedPartition(partition, group_column, labels, table)
    return partition if weight_column is None else weighted(partition, weight_column)
