r"""Weights by row: a column $w_n \ge 0$ that multiplies the log likelihoods of rows.

$$\log p(\theta, X) = \log p(\theta) + \sum_n w_n \log p(x_n \mid \theta).$$

They become the weights of the rows of shards, which are zero for padding. The model does not see
the column.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .files import FilePartition
from .grouped import GroupedPartition
from .partition import Partition
from .shard import AbstractPartition, InMemoryShards, Shard
from .tiles import row_weights


def weighted(partition: AbstractPartition, column: str) -> AbstractPartition:
    """Return a partition whose rows have the weights in a column.

    Args:
        partition: the partition, whose shards hold whole groups if the model has groups.
        column: the column with weights.
    """
    plain = partition.partition if isinstance(partition, GroupedPartition) else partition
    if column in plain.levels:
        raise ValueError(f"the weights rows[{column!r}] must hold numbers or booleans; got text.")
    if isinstance(plain, Partition):
        _check_present(column, plain.rows)
        check_weights(column, plain.rows[column])
    elif isinstance(plain, FilePartition):
        _check_present(column, plain.columns)
    else:
        _check_present(column, plain.load(0).rows)
    if isinstance(partition, GroupedPartition):
        return partition.weighted(column)
    return WeightedPartition(partition, column)


class WeightedPartition(AbstractPartition):
    """A partition without groups whose rows have the weights in a column, in any process."""

    is_weighted = True

    def __init__(self, partition: AbstractPartition, column: str):
        self.partition = partition
        self.column = column

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        """Whether loaded shards may all be cached."""
        return self.partition.in_memory

    @property
    def max_kept_bytes(self) -> int:  # type: ignore[override]
        """Bytes of loaded shards that are kept."""
        return self.partition.max_kept_bytes

    @property
    def num_shards(self) -> int:
        return self.partition.num_shards

    def load(self, shard: int) -> Shard:
        """Return one shard; its column of weights has become the weights of its rows."""
        plain = self.partition.load(shard)
        rows = dict(plain.rows)
        weights = row_weights(self.column, np.asarray(rows.pop(self.column)), shard)
        return Shard(rows, jax.device_put(np.asarray(plain.weights) * weights))

    def is_small(self, max_bytes: int) -> bool:
        return self.partition.is_small(max_bytes)

    @property
    def uneven_counts(self) -> Sequence[int] | None:
        return self.partition.uneven_counts

    def subset(self, shards: Sequence[int]) -> AbstractPartition:
        if self.in_memory:
            return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)
        return WeightedPartition(self.partition.subset(shards), self.column)

    def has(self, shard: int) -> bool:
        return self.partition.has(shard)


def _check_present(column: Any, columns: Any) -> None:
    if column not in columns:
        raise ValueError(
            f"weights must name a column of the rows, one of {list(columns)}; got {column!r}."
        )
    if len(columns) == 1:
        raise ValueError(f"rows must have other columns than the weights {column!r}; got none.")


def check_weights(column: str, values: Float[np.ndarray, "..."]) -> None:
    """Refuse the weights of rows in memory that are no weights, or are all zero."""
    row_weights(column, values)
    if not np.any(values > 0):
        raise ValueError(
            f"the weights rows[{column!r}] must not all be zero; got {len(values)} rows of weight "
            "zero."
        )
