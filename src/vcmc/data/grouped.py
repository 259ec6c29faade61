"""Rows that belong to groups: labels of any kind, and partitions whose shards hold whole groups."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from .columns import check_group_column
from .files import FilePartition
from .group_labels import checked_labels, named_labels
from .labels import as_coords
from .partition import Partition
from .rows import as_rows, named_columns, native
from .shard import AbstractPartition, InMemoryShards, Shard
from .tiles import TileLayout, row_weights, tiled


def encode_groups(
    rows: Any, column: str, table: Mapping[str, np.ndarray] | None = None
) -> tuple[dict[str, Any], np.ndarray]:
    """Replace the labels of groups, of any kind, by numbers from zero; return the labels, too.

    Args:
        rows: rows in memory.
        column: the column with labels.
        table: arrays with one entry per group; labels that only it has are groups without rows.
    """
    columns = dict(named_columns(rows))
    check_group_column(column, columns)
    labels = checked_labels(columns[column], f"rows[{column!r}]")
    unique, codes = np.unique(labels, return_inverse=True)
    if table is not None:
        codes = _numbers_in_table(unique, table[column])[codes]
        unique = table[column]
    return {**columns, column: codes}, as_coords(unique)


def _numbers_in_table(labels: np.ndarray, known: np.ndarray) -> Int[np.ndarray, " label"]:
    """Return the numbers of labels among those of the table of groups, which are in order."""
    if len(missing := np.setdiff1d(labels, known)):
        raise ValueError(
            f"the table of groups must have an entry for every group of the rows; {len(missing)} "
            f"are missing, e.g. {named_labels(missing)}."
        )
    return np.searchsorted(known, labels)


def checked_table(table: Any, column: str) -> dict[str, np.ndarray]:
    """Return a table with one row per group as arrays, in the order of their labels."""
    columns = dict(named_columns(table))
    if column not in columns:
        raise ValueError(
            f"group_rows must have the column {column!r} with the labels of groups; got "
            f"{list(columns)}."
        )
    labels = checked_labels(columns.pop(column), f"group_rows[{column!r}]")
    unique, counts = np.unique(labels, return_counts=True)
    if (counts > 1).any():
        repeated = named_labels(unique[counts > 1])
        raise ValueError(f"group_rows must have one row per group; got several of {repeated}.")
    order = np.argsort(labels, kind="stable")
    arrays = as_rows(columns) if columns else {}
    return {column: labels[order]} | {name: array[order] for name, array in arrays.items()}


class GroupMembers(NamedTuple):
    """The groups that the shards of a partition hold.

    Attributes:
        labels: the labels of all groups, in increasing order.
        values: what the column of groups holds for each: its number, or the label itself.
        members: for each shard, the places of its groups in `labels`, in increasing order.
        sizes: for each shard, the numbers of rows of these groups.
    """

    labels: np.ndarray
    values: Int[np.ndarray, " group"]
    members: list[Int[np.ndarray, " group"]]
    sizes: list[Int[np.ndarray, " group"]]

    @classmethod
    def of_partition(cls, partition: AbstractPartition, column: str) -> "GroupMembers":
        """Return the groups of a partition; its shards are loaded only where they must be."""
        stored = partition.read_groups() if isinstance(partition, FilePartition) else None
        if stored is not None and stored.column == column:
            shards = range(partition.num_shards)
            members = [np.flatnonzero(stored.shards == shard) for shard in shards]
            labels, counts = stored.groups
            sizes = [counts[numbers] for numbers in members]
            return cls(as_coords(labels), np.arange(len(labels)), members, sizes)
        values, sizes = [], []
        for shard in range(partition.num_shards):
            unique, counts = np.unique(_shard_values(partition, shard, column), return_counts=True)
            values.append(unique)
            sizes.append(counts)
        _check_whole(values, column)
        together = np.sort(np.concatenate(values))
        return cls(together, together, [np.searchsorted(together, v) for v in values], sizes)


def _shard_values(partition: AbstractPartition, shard: int, column: str) -> np.ndarray:
    """Return the column of groups of a shard."""
    if isinstance(partition, Partition) and column in partition.rows:
        return partition.rows[column][partition.members[shard]]
    return _column_of(partition.load(shard), column)


def _column_of(shard: Shard, column: str) -> Int[np.ndarray, " row"]:
    """Return the column of groups of a shard without padding."""
    if column not in shard.rows:
        raise ValueError(
            f"the model's groups are the column {column!r}, which the rows of a shard do "
            f"not have; they have {list(shard.rows)}."
        )
    return np.asarray(shard.rows[column])[np.asarray(shard.weights) > 0]


class TiledPartition(AbstractPartition):
    """A partition whose shards hold whole groups, laid out in tiles, in any process.

    Args:
        partition: the partition.
        column: the column of groups.
        layout: the layout of a shard.
        values: what the column of groups holds, in increasing order; None if it holds numbers.
        numbers: the number of the group of each of these values.
        table: arrays with one entry per group, which are added to the rows of the group.
        weight_column: the column with the weights of rows, if they have any.
    """

    def __init__(
        self,
        partition: AbstractPartition,
        column: str,
        layout: TileLayout,
        values: np.ndarray | None,
        numbers: Int[np.ndarray, " group"],
        table: Mapping[str, np.ndarray],
        weight_column: str | None = None,
    ):
        self.partition = partition
        self.column = column
        self.layout = layout
        self.table = {name: array for name, array in table.items() if name != column}
        self.weight_column = weight_column
        self._values, self._numbers = values, numbers

    @property
    def is_weighted(self) -> bool:  # type: ignore[override]
        """Whether rows have weights of their own."""
        return self.weight_column is not None

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
        """Return one shard with its rows laid out by groups, which are numbered from zero."""
        plain = self.partition.load(shard)
        values = _column_of(plain, self.column)
        codes = self._numbers[self._places(values)]
        groups, order, weights = tiled(codes, self.layout)
        is_row = np.asarray(plain.weights) > 0
        rows = {name: np.asarray(array)[is_row][order] for name, array in plain.rows.items()}
        rows[self.column] = codes[order]
        rows |= {name: native(entries)[codes[order]] for name, entries in self.table.items()}
        if self.weight_column is not None:  # after the layout, as rows of weight zero have groups
            weights = weights * row_weights(self.weight_column, rows.pop(self.weight_column), shard)
            groups = dataclasses.replace(groups, is_full=False)
        arrays = {name: jnp.asarray(array) for name, array in rows.items()}
        return Shard(arrays, jnp.asarray(weights), groups)

    def _places(self, values: np.ndarray) -> Int[np.ndarray, " row"]:
        return values if self._values is None else np.searchsorted(self._values, values)

    def is_small(self, max_bytes: int) -> bool:
        return self.partition.is_small(max_bytes)

    def subset(self, shards: Sequence[int]) -> AbstractPartition:
        if self.in_memory:
            return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)
        partition = self.partition.subset(shards)
        return TiledPartition(
            partition,
            self.column,
            self.layout,
            self._values,
            self._numbers,
            self.table,
            self.weight_column,
        )

    def has(self, shard: int) -> bool:
        return self.partition.has(shard)


class GroupedPartition(TiledPartition):
    """A partition whose shards hold whole groups, laid out in tiles, with the labels of groups.

    Args:
        partition: the partition; its column of groups holds numbers.
        column: the column of groups.
        labels: the labels of groups 0, 1, …; by default those by which the rows were split into
            files, or the numbers that the column holds.
        table: arrays with one entry per label, which are added to the rows of the group; labels
            that only it has are groups without rows.

    Attributes:
        labels: the labels of all groups.
        members: for each shard, the numbers of its groups.
        sizes: for each shard, the numbers of rows of its groups.
    """

    def __init__(
        self,
        partition: AbstractPartition,
        column: str,
        labels: np.ndarray | None = None,
        table: Mapping[str, np.ndarray] | None = None,
    ):
        groups = GroupMembers.of_partition(partition, column)
        if labels is not None:
            numbers = groups.values
        elif table:
            numbers, labels = _numbers_in_table(groups.labels, table[column]), table[column]
        else:
            numbers, labels = np.arange(len(groups.labels)), groups.labels
        is_numbered = np.array_equal(groups.values, np.arange(len(groups.values)))
        layout = TileLayout.for_sizes(groups.sizes)
        values = None if is_numbered else groups.values
        super().__init__(partition, column, layout, values, numbers, table or {})
        self.labels = as_coords(labels)
        self.members = [numbers[places] for places in groups.members]
        self.sizes = groups.sizes

    def weighted(self, column: str) -> "GroupedPartition":
        """Return the same partition with the weights of rows in a column."""
        changed = copy.copy(self)
        changed.weight_column = column
        return changed

    def group_numbers(self, values: np.ndarray) -> Int[np.ndarray, " row"]:
        """Return the numbers of the groups of rows, given what their column of groups holds."""
        return self._numbers[self._places(values)]

    @property
    def absent(self) -> Int[np.ndarray, " group"]:
        """The numbers of groups without rows."""
        return np.setdiff1d(np.arange(len(self.labels)), np.concatenate(self.members))

    def absent_shard(self) -> Shard:
        """Return a shard of the groups without rows: one row of weight zero for each."""
        numbers = self.absent
        plain = self.partition.load(0)
        rows = {
            name: np.repeat(np.asarray(array)[:1], len(numbers), axis=0)
            for name, array in plain.rows.items()
            if name != self.weight_column
        }
        rows[self.column] = numbers
        rows |= {name: native(values)[numbers] for name, values in self.table.items()}
        groups, _, _ = tiled(numbers, TileLayout(1, len(numbers), len(numbers)))
        arrays = {name: jnp.asarray(array) for name, array in rows.items()}
        return Shard(arrays, jnp.zeros(len(numbers)), groups)


def _check_whole(members: Sequence[np.ndarray], column: str) -> None:
    """Raise an error if a group has rows in two shards."""
    together = np.concatenate(members)
    codes, counts = np.unique(together, return_counts=True)
    if (counts > 1).any():
        split = codes[counts > 1]
        raise ValueError(
            f"every group must lie in one shard; {len(split)} groups of {column!r} have rows in "
            f"several, e.g. {named_labels(split)}. Split the rows by groups: vcmc.split(rows, "
            f"num_shards, groups={column!r})."
        )
