"""Which rows a shard holds, so that numbers by row are returned in the order of the rows."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from .files import FilePartition
from .partition import Partition
from .shard import AbstractPartition
from .shard_writer import ShardAssignment


def row_numbers(
    partition: AbstractPartition, sizes: Sequence[int]
) -> list[Int[np.ndarray, " row"]]:
    """Return for each shard the numbers of its rows among all rows.

    Where a partition does not know them (rows that a function loads, or that were split into files
    by groups), rows are numbered shard after shard.

    Args:
        partition: the partition.
        sizes: the number of rows of each shard.

    >>> from vcmc import LazyRows, split
    >>> partition = split({"y": np.arange(5.0)}, 2)
    >>> first, second = row_numbers(partition, [3, 2])
    >>> first.tolist() == partition.load(0).rows["y"].tolist()
    True
    >>> partition = LazyRows(lambda shard: {"y": np.zeros(2 + shard)}, 2)
    >>> [numbers.tolist() for numbers in row_numbers(partition, [2, 3])]
    [[0, 1], [2, 3, 4]]
    """
    if isinstance(partition, Partition):
        return list(partition.members)
    order = np.arange(sum(sizes))
    if isinstance(partition, FilePartition) and partition.source["groups"] is None:
        assignment = ShardAssignment(partition.num_shards, partition.source["seed"])
        order = np.argsort(assignment.next(len(order)), kind="stable")
    return np.split(order, np.cumsum(sizes)[:-1])
