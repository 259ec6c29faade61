"""Labels of groups: checked, numbered, counted batch by batch, and assigned to shards.

Rows that do not fit into memory are read twice to be split by groups: once for their labels, which
takes as much memory as there are groups, and once for the rows.
"""

import heapq
import io
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from .batches import distinct_batches
from .columns import Columns, check_group_column
from .folders import open_like_folder

MAX_NAMED_LABELS = 3  # in a message
MIN_MERGED = 2**16  # labels of batches that are collected before they are merged
GROUPS_FILE = "groups.npz"


def checked_labels(values: Any, name: str) -> np.ndarray:
    """Return labels as an array of one sortable type; refuse missing ones."""
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label per row; got shape {labels.shape}.")
    missing = _is_missing(labels)
    if missing.any():
        raise ValueError(_missing_labels(name, int(missing.sum()), int(np.argmax(missing))))
    return _whole_numbers(_sortable(labels))


def named_labels(labels: np.ndarray) -> str:
    """Return the first labels as text, for a message."""
    return ", ".join(repr(label) for label in labels[:MAX_NAMED_LABELS].tolist())


def _is_missing(labels: np.ndarray) -> Bool[np.ndarray, " label"]:
    if labels.dtype.kind == "f":
        return ~np.isfinite(labels)
    if labels.dtype.kind in "Mm":
        return np.isnat(labels)
    if labels.dtype.kind == "O":
        return np.array([value is None or value != value for value in labels], bool)
    return np.zeros(len(labels), bool)


def _sortable(labels: np.ndarray) -> np.ndarray:
    """Return objects, and NumPy's strings of variable length, as strings."""
    if labels.dtype.kind in "OT":
        return np.array([str(value) for value in labels.tolist()], str)
    return labels


def _whole_numbers(labels: np.ndarray) -> np.ndarray:
    """Return floating-point numbers that are all whole as integers."""
    if labels.dtype.kind == "f" and (labels == np.round(labels)).all():
        return labels.astype(np.int64)
    return labels


def _missing_labels(name: str, count: int, first: int) -> str:
    return (
        f"{name} must give a group to every row; {count} labels are missing (first: row {first}). "
        "Drop these rows, or give them a label of their own."
    )


class GroupIndex(NamedTuple):
    """The groups of some rows.

    Attributes:
        labels: the labels in increasing order.
        counts: the number of rows of each group.
    """

    labels: np.ndarray
    counts: Int[np.ndarray, " group"]

    def numbers(self, labels: np.ndarray) -> Int[np.ndarray, " label"]:
        """Return the numbers of labels, from zero."""
        wanted = _sortable(labels)
        if self.labels.dtype.kind == "U" != wanted.dtype.kind:
            wanted = wanted.astype(str)
        numbers = np.minimum(np.searchsorted(self.labels, wanted), len(self.labels) - 1)
        if len(unknown := wanted[self.labels[numbers] != wanted]):
            raise ValueError(
                "rows must not change while they are read; got the new labels of groups "
                f"{named_labels(unknown)}. Wait until the files are complete."
            )
        return numbers


def index_groups(rows: Any, column: str, columns: Columns | None = None) -> GroupIndex:
    """Read the labels of groups of rows that need not be in memory.

    Args:
        rows: rows that are read in batches.
        column: the array with the labels.
        columns: the arrays to make of the columns of a file.
    """
    name = f"rows[{column!r}]"
    merged: list[GroupIndex] = []
    num_read = num_missing = first_missing = num_pending = 0
    for values, codes in distinct_batches(rows, label_source(column, columns)):
        if values.ndim != 1:
            raise ValueError(
                f"{name} must hold one label per row; got shape {(len(codes), *values.shape[1:])}."
            )
        # the code of a null is -1, which is the last entry here
        missing = np.append(_is_missing(values), True)[codes]
        if missing.any() and not num_missing:
            first_missing = num_read + int(np.argmax(missing))
        num_missing += int(missing.sum())
        num_read += len(codes)
        if num_missing:
            continue
        counts = np.bincount(codes, minlength=len(values))
        merged.append(GroupIndex(_sortable(values[counts > 0]), counts[counts > 0]))
        num_pending += len(merged[-1].labels)
        if num_pending > max(MIN_MERGED, len(merged[0].labels)):
            merged, num_pending = [_merge(merged)], 0
    if num_missing:
        raise ValueError(_missing_labels(name, num_missing, first_missing))
    if not merged:
        raise ValueError("rows must hold at least one row; got none.")
    labels, counts = _merge(merged)
    return GroupIndex(_whole_numbers(labels), counts)


def label_source(column: str, columns: Columns | None) -> str:
    """Return the column of a file that holds the labels of groups."""
    if columns is None:
        return column
    check_group_column(column, columns)
    source = columns[column]
    if not isinstance(source, str):
        raise ValueError(
            f"columns[{column!r}] must be one column, as it holds the labels of groups; got "
            f"{list(source)}."
        )
    return source


def _merge(parts: list[GroupIndex]) -> GroupIndex:
    labels, inverse = np.unique(
        np.concatenate([part.labels for part in parts]), return_inverse=True
    )
    counts = np.concatenate([part.counts for part in parts])
    return GroupIndex(labels, np.bincount(inverse, counts, len(labels)).astype(np.int64))


def assign_groups(
    counts: Int[np.ndarray, " group"], num_shards: int, seed: int
) -> Int[np.ndarray, " group"]:
    """Return a shard for each group: the largest first, to the shard with the fewest rows so far.

    >>> sorted(assign_groups(np.array([4, 2, 2]), 2, seed=0).tolist())
    [0, 1, 1]
    """
    if num_shards > len(counts):
        raise ValueError(
            f"num_shards must not exceed the number of groups ({len(counts)}), which stay whole; "
            f"got {num_shards}. Try fewer shards."
        )
    shuffled = np.random.default_rng(seed).permutation(len(counts))
    sizes = [(0, shard) for shard in range(num_shards)]  # a heap
    shard_of = np.empty(len(counts), int)
    for group in shuffled[np.argsort(-counts[shuffled], kind="stable")]:
        size, shard = sizes[0]
        shard_of[group] = shard
        heapq.heapreplace(sizes, (size + int(counts[group]), shard))
    return shard_of


class SplitGroups(NamedTuple):
    """The groups of rows that were split, and the shard of each.

    Attributes:
        column: the column of groups, which holds their numbers in the files of shards.
        groups: their labels and numbers of rows.
        shards: the shard of each.
    """

    column: str
    groups: GroupIndex
    shards: Int[np.ndarray, " group"]

    def write(self, folder: Path) -> int:
        """Write them to the folder of a split, and return the checksum of the file."""
        buffer = io.BytesIO()
        labels, counts = self.groups
        np.savez(buffer, allow_pickle=False, labels=labels, counts=counts, shards=self.shards)
        with open_like_folder(folder / GROUPS_FILE, "wb") as file:
            file.write(buffer.getbuffer())
        return zlib.crc32(buffer.getbuffer())

    @classmethod
    def read(cls, folder: Path, column: str, checksum: int) -> "SplitGroups":
        """Read them from the folder of a split."""
        path = folder / GROUPS_FILE
        content = path.read_bytes() if path.exists() else b""
        if zlib.crc32(content) != checksum:
            raise ValueError(
                f"{path} is missing or damaged. Delete its folder and split the rows again."
            )
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            groups = GroupIndex(arrays["labels"], arrays["counts"])
            return cls(column, groups, arrays["shards"])
