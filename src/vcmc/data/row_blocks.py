"""Rows in their order, from memory or from files, in blocks of one number of rows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .batches import batches, fingerprint_rows, is_large, with_arrays
from .categories import Levels, encode_text
from .columns import Batch, choose_columns
from .files import FilePartition
from .group_labels import checked_labels
from .grouped import TiledPartition
from .partition import Partition
from .rows import as_rows, named_columns, native
from .shard import AbstractPartition
from .size import FileRows, rows_size


@dataclass(frozen=True)
class RowStream:
    """Rows in any form that `infer` takes, read from the first to the last.

    The rows of a partition are read shard by shard, unless it holds them in memory.
    """

    rows: Any

    def __post_init__(self) -> None:
        if callable(self.rows):
            raise TypeError(
                "rows must be data; got a function. Pass vcmc.LazyRows(load, num_shards)."
            )
        if isinstance(self.rows, TiledPartition):
            raise TypeError("rows must be given as they are, not split by groups.")

    def batches(self) -> Iterator[Batch]:
        """Yield columns of some rows as they are, but text whose levels are known as numbers."""
        rows = self.rows
        if isinstance(rows, FileRows):
            chosen = (choose_columns(batch, rows.columns) for batch in batches(rows.path))
            return (_with_numbers(batch, rows.levels or {}) for batch in chosen)
        if isinstance(rows, Partition):
            return iter([dict(rows.rows)])
        if isinstance(rows, AbstractPartition):
            return (_without_padding(rows, shard) for shard in range(rows.num_shards))
        if is_large(rows):
            return batches(with_arrays(rows))
        return iter([{str(name): column for name, column in named_columns(rows).items()}])

    @property
    def num_rows(self) -> int | None:
        """The number of rows, if it is known before they are read."""
        rows = self.rows
        if isinstance(rows, Partition | FilePartition):
            return sum(rows.sizes)
        return None if isinstance(rows, AbstractPartition) else rows_size(rows).num_rows

    @property
    def is_in_order(self) -> bool:
        """Whether rows are read in the order in which the user has them."""
        return not isinstance(self.rows, FilePartition)

    def fingerprint(self) -> dict[str, Any]:
        """Return what tells these rows from others, as far as that can be told."""
        rows = self.rows.path if isinstance(self.rows, FileRows) else self.rows
        if isinstance(rows, AbstractPartition) and not isinstance(rows, Partition):
            return {"num_shards": rows.num_shards}
        if not is_large(rows):
            columns = rows.rows if isinstance(rows, Partition) else named_columns(rows)
            rows = {str(name): _hashable(np.asarray(column)) for name, column in columns.items()}
        found = fingerprint_rows(rows)
        return {name: [part["content"], part["checksum"]] for name, part in found.items()}


def _with_numbers(batch: Batch, levels: Levels) -> Batch:
    """Return the columns of a batch with numbers of levels in place of their text."""
    text = {name: batch[name] for name in levels if name in batch}
    return {**batch, **encode_text(text, levels)[0]}


def _hashable(array: np.ndarray) -> np.ndarray:
    return array.astype(str) if array.dtype.kind in "OT" else array


def _without_padding(partition: AbstractPartition, number: int) -> Batch:
    shard = partition.load(number)
    is_row = np.asarray(shard.weights) > 0
    return {name: np.asarray(array)[is_row] for name, array in shard.rows.items()}


def checked_batches(
    stream: RowStream, names: Iterable[str], groups: str | None = None
) -> Iterator[Batch]:
    """Yield checked arrays of 64-bit numbers of some columns, and labels of groups as they are."""
    names = list(names)
    num_read = 0
    for batch in stream.batches():
        arrays = as_rows({name: batch[name] for name in names}, num_read) if names else {}
        checked = {name: native(array) for name, array in arrays.items()}
        if groups is not None:
            checked[groups] = checked_labels(batch[groups], f"rows[{groups!r}]")
        count = num_entries(checked)
        yield checked
        num_read += count


def num_entries(batch: Mapping[str, Any]) -> int:
    """Return the number of rows of a batch."""
    return len(next(iter(batch.values())))


def blocks_of(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Cut batches of any sizes into blocks of `size` rows; the last one may have fewer.

    >>> [block["y"].tolist() for block in blocks_of([{"y": np.arange(3)}, {"y": np.arange(2)}], 2)]
    [[0, 1], [2, 0], [1]]
    """
    pending: list[Batch] = []
    missing = size
    for batch in batches:
        begin, end = 0, num_entries(batch)
        while begin < end:
            part = {name: array[begin : begin + missing] for name, array in batch.items()}
            pending.append(part)
            begin += num_entries(part)
            missing -= num_entries(part)
            if missing == 0:
                yield _joined(pending)
                pending, missing = [], size
    if pending:
        yield _joined(pending)


def _joined(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
