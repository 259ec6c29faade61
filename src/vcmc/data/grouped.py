"""Rows that belong to groups: labels of any kind, and partitions whose shards hold whole groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from .labels import as_coords
from .rows import as_rows, named_columns, native
from .shard import AbstractPartition, InMemoryShards, Shard
from .tiles import TileLayout, tiled

MAX_NAMED_LABELS = 3  # in a message


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
    if column not in columns:
        raise ValueError(
            f"groups must name a column of the rows, one of {list(columns)}; got {column!r}."
        )
    labels = checked_labels(columns[column], f"rows[{column!r}]")
    known = labels if table is None else np.concatenate([labels, table[column]])
    unique = np.unique(known)
    if table is not None and len(missing := np.setdiff1d(labels, table[column])):
        raise ValueError(
            f"the table of groups must have an entry for every group of the rows; {len(missing)} "
            f"are missing, e.g. {_named(missing)}."
        )
    codes = np.searchsorted(unique, labels)
    return {**columns, column: codes}, as_coords(unique)


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
        raise ValueError(
            f"group_rows must have one row per group; got several of {_named(unique[counts > 1])}."
        )
    order = np.argsort(labels, kind="stable")
    arrays = as_rows(columns) if columns else {}
    return {column: labels[order]} | {name: array[order] for name, array in arrays.items()}


def checked_labels(values: Any, name: str) -> np.ndarray:
    """Return labels as an array of one sortable type; refuse missing ones."""
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label per row; got shape {labels.shape}.")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            count = int(np.sum(~np.isfinite(labels)))
            raise ValueError(_missing_labels(name, count, int(np.argmax(~np.isfinite(labels)))))
        if (labels == np.round(labels)).all():
            labels = labels.astype(np.int64)
    if labels.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in labels])
        if missing.any():
            raise ValueError(_missing_labels(name, int(missing.sum()), int(np.argmax(missing))))
        labels = np.array([str(value) for value in labels])
    if labels.dtype.kind in "Mm" and np.isnat(labels).any():
        missing = np.isnat(labels)
        raise ValueError(_missing_labels(name, int(missing.sum()), int(np.argmax(missing))))
    return labels


def _missing_labels(name: str, count: int, first: int) -> str:
    return (
        f"{name} must give a group to every row; {count} labels are missing (first: row {first}). "
        "Drop these rows, or give them a label of their own."
    )


def _named(labels: np.ndarray) -> str:
    return ", ".join(repr(label) for label in labels[:MAX_NAMED_LABELS].tolist())


class GroupedPartition(AbstractPartition):
    """A partition whose shards hold whole groups, laid out in tiles.

    Args:
        partition: the partition; its column of groups holds numbers.
        column: the column of groups.
        labels: the labels of groups 0, 1, …; by default the numbers that the column holds.
        table: arrays with one entry per label, which are added to the rows of the group.
    """

    def __init__(
        self,
        partition: AbstractPartition,
        column: str,
        labels: np.ndarray | None = None,
        table: Mapping[str, np.ndarray] | None = None,
    ):
        self.partition = partition
        self.column = column
        self.table = {name: array for name, array in (table or {}).items() if name != column}
        self.members: list[np.ndarray] = []
        sizes = []
        for number in range(partition.num_shards):
            codes, counts = np.unique(self._codes(partition.load(number)), return_counts=True)
            self.members.append(codes)
            sizes.append(counts)
        _check_whole(self.members, column)
        self.sizes = sizes  # numbers of rows, in the order of members
        self.layout = TileLayout.for_sizes(sizes)
        if labels is None:
            labels = np.sort(np.concatenate(self.members))
            self.members = [np.searchsorted(labels, codes) for codes in self.members]
        self.labels = labels

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        """Whether loaded shards may all be cached."""
        return self.partition.in_memory

    @property
    def num_shards(self) -> int:
        return self.partition.num_shards

    def _codes(self, shard: Shard) -> Int[np.ndarray, " row"]:
        if self.column not in shard.rows:
            raise ValueError(
                f"the model's groups are the column {self.column!r}, which the rows of a shard do "
                f"not have; they have {list(shard.rows)}."
            )
        return np.asarray(shard.rows[self.column])[np.asarray(shard.weights) > 0]

    def load(self, shard: int) -> Shard:
        """Return one shard with its rows laid out by groups."""
        plain = self.partition.load(shard)
        codes = self._codes(plain)
        groups, numbers, weights = tiled(codes, self.layout)
        is_row = np.asarray(plain.weights) > 0
        rows = {name: np.asarray(array)[is_row][numbers] for name, array in plain.rows.items()}
        rows |= {name: native(values)[rows[self.column]] for name, values in self.table.items()}
        arrays = {name: jnp.asarray(array) for name, array in rows.items()}
        return Shard(arrays, jnp.asarray(weights), groups)

    def is_small(self, max_bytes: int) -> bool:
        return self.partition.is_small(max_bytes)

    def subset(self, shards: Sequence[int]) -> AbstractPartition:
        return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)

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
            f"several, e.g. {_named(split)}. Split the rows by groups: vcmc.split(rows, "
            f"num_shards, groups={column!r})."
        )
