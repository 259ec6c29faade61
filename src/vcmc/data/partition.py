"""Split rows into shards: every row belongs to exactly one shard."""

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..progress import ProgressDisplay, ProgressMode, Stage
from .batches import is_large, with_arrays
from .categories import NO_LEVELS, Levels, encode_text, is_text
from .columns import Columns, check_columns
from .files import FilePartition, SplitSettings, split_to_files, write_split
from .folders import discard, temporary_folder
from .group_labels import assign_groups, checked_labels
from .rows import Rows, as_rows, named_columns, native
from .shard import (
    AbstractPartition,
    InMemoryShards,
    Shard,
    check_loader,
    check_num_shards,
    padded,
    padded_length,
)


@dataclass(frozen=True, eq=False)
class Partition(AbstractPartition):
    """Rows in memory, and the shard of each. `split` returns it."""

    rows: dict[str, np.ndarray]
    members: tuple[np.ndarray, ...]
    """For each shard, the indices of its rows."""
    levels: Levels = field(default_factory=dict)

    in_memory = True

    @property
    def num_shards(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> list[int]:
        """Number of rows of each shard."""
        return [len(indices) for indices in self.members]

    def load(self, shard: int) -> Shard:
        """Return one shard, padded with copies of its first row to a shape that shards share."""
        indices = self.members[shard]
        length = padded_length(len(indices), max(self.sizes))
        return padded({name: native(array[indices]) for name, array in self.rows.items()}, length)

    def is_small(self, max_bytes: int) -> bool:
        largest = max(self.sizes)
        row_bytes = 8 + sum(native(array[:1]).nbytes for array in self.rows.values())
        one_shape = all(padded_length(size, largest) == largest for size in self.sizes)
        return one_shape and largest * self.num_shards * row_bytes <= max_bytes

    def subset(self, shards: Sequence[int]) -> InMemoryShards:
        return InMemoryShards({shard: self.load(shard) for shard in shards}, self.num_shards)

    def __repr__(self) -> str:
        sizes = self.sizes
        return (
            f"Partition({sum(sizes)} rows of {list(self.rows)} in {len(sizes)} shards of "
            f"{min(sizes)} to {max(sizes)} rows)"
        )


def split(
    rows: Any,
    num_shards: int,
    *,
    seed: int = 0,
    stratify: Any = None,
    groups: Any = None,
    columns: Columns | None = None,
    levels: Levels | None = None,
    folder: str | Path | None = None,
    progress: ProgressMode = True,
) -> Partition | FilePartition:
    """Split rows at random into shards whose sizes differ by at most one.

    Rows that need not fit into memory (Parquet files, Zarr stores, memory-mapped arrays) are read
    once, in batches, and written to the files of their shards, from which shards are loaded when
    they are needed.

    Args:
        rows: a mapping of arrays with one leading axis, or a pandas or polars data frame; or the
            path of a Parquet or CSV file, of a folder of them, or of a Zarr store; or a mapping of
            memory-mapped arrays.
        num_shards: number of shards, from 1 to the number of rows.
        seed: seed of the shuffle.
        stratify: a column's name, or one level per row: each level is spread over all shards as
            evenly as possible. Use it where a level is rare.
        groups: a column's name, or one label per row: rows with the same label stay in one shard.
            Sizes then differ by as much as the groups' sizes demand. Of rows that are read in
            batches it is a column, which may hold labels of any kind.
        columns: the arrays to make of a file's columns, e.g.
            `{"y": "clicked", "x": ["age", "income"]}`; by default an array for each.
        levels: the levels of columns of text, whose numbers take their place, e.g.
            `model.levels`; by default all that occur, in alphabetical order or in that of a
            categorical column.
        folder: folder for the files of rows that are read in batches; by default a temporary
            one. On a cluster, choose one that all machines can read.
        progress: show how many rows were read in batches, if standard error is a terminal;
            "lines" writes plain lines elsewhere.

    >>> import numpy as np
    >>> split({"y": np.arange(10.0)}, 3).sizes
    [4, 3, 3]
    >>> partition = split({"y": np.arange(9.0)}, 3, groups=[1, 1, 1, 2, 2, 2, 3, 3, 3])
    >>> sorted(members.tolist() for members in partition.members)
    [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    """
    if folder is not None or columns is not None or is_large(rows):
        check_seed(seed)
        check_columns(columns)
        _check_batched(stratify, groups)
        known = _settings_levels(rows, columns, groups, levels or NO_LEVELS)
        settings = SplitSettings(num_shards, seed, columns, groups, known)
        return _split_on_disk(_batched(rows, groups), settings, folder, progress)
    encoded, found = encode_text(rows, levels or NO_LEVELS)
    arrays = as_rows(encoded)
    num_rows = len(next(iter(arrays.values())))
    if not isinstance(num_shards, int | np.integer):
        raise TypeError(f"num_shards must be an integer, e.g. num_shards=20; got {num_shards!r}.")
    check_seed(seed)
    if not 1 <= num_shards <= num_rows:
        raise ValueError(
            f"num_shards must lie between 1 and the number of rows ({num_rows}); "
            f"got {num_shards!r}. Try fewer shards: each needs enough rows to inform every "
            "parameter."
        )
    if stratify is not None and groups is not None:
        raise ValueError(
            "split takes stratify or groups, not both: a group cannot be kept whole and spread. "
            "Leave one of them out."
        )
    if groups is not None:
        labels = _labels(groups, arrays, num_rows, "groups")
        shards = assign_groups(np.bincount(labels), int(num_shards), seed)[labels]
        members = [np.flatnonzero(shards == shard) for shard in range(num_shards)]
    else:
        order = np.random.default_rng(seed).permutation(num_rows)
        if stratify is not None:
            strata = _labels(stratify, arrays, num_rows, "stratify")
            order = order[np.argsort(strata[order], kind="stable")]
        members = [order[shard::num_shards] for shard in range(num_shards)]
    return Partition(arrays, tuple(np.sort(indices) for indices in members), found)


def _settings_levels(
    rows: Any, columns: Columns | None, groups: str | None, levels: Levels
) -> dict[str, list[str]] | None:
    """Return the levels that the user names, and those of columns of text in memory."""
    known = dict(levels)
    if not is_large(rows):
        own = encode_text(rows, skip={groups})[1]
        sources = columns or {name: name for name in own}
        known = {
            name: own[source]
            for name, source in sources.items()
            if isinstance(source, str) and source in own
        } | known
    return {name: np.asarray(own).tolist() for name, own in known.items()} or None


def _check_batched(stratify: Any, groups: Any) -> None:
    """Refuse arguments that rows which are read in batches cannot be split by."""
    if stratify is not None:
        raise ValueError(
            "stratify is for rows in memory; rows that are read in batches are split at random, "
            "or by groups. Leave it out, or load the rows."
        )
    if groups is not None and not isinstance(groups, str):
        raise ValueError(
            "groups must name a column of rows that are read in batches, e.g. groups='county'; "
            f"got {type(groups).__name__}."
        )


def _batched(rows: Any, groups: str | None) -> Any:
    """Return rows in a form that is read in batches; labels that are in memory are checked."""
    if isinstance(rows, str | os.PathLike) or (groups is None and is_large(rows)):
        return with_arrays(rows)
    columns = dict(named_columns(rows))
    if groups is None:
        text = {name for name, column in columns.items() if is_text(column)}
        numbers = {name: column for name, column in columns.items() if name not in text}
        arrays = as_rows(numbers) if numbers or not text else {}
        return {
            str(name): np.asarray(column, str) if name in text else arrays[str(name)]
            for name, column in columns.items()
        }
    if groups in columns and not is_large({groups: columns[groups]}):
        columns[groups] = checked_labels(columns[groups], f"rows[{groups!r}]")
    return with_arrays(columns)


def _split_on_disk(
    rows: Any, settings: SplitSettings, folder: str | Path | None, progress: ProgressMode
) -> FilePartition:
    """Split rows into files; those in a temporary folder are deleted with the partition."""
    with ProgressDisplay(progress) as display:
        stage = display.stage("split rows", None)
        if folder is not None:
            partition = split_to_files(rows, settings, Path(folder), stage.advance)
        else:
            partition = _temporary_split(rows, settings, stage)
        stage.finish()
    return partition


def _temporary_split(rows: Any, settings: SplitSettings, stage: Stage) -> FilePartition:
    check_num_shards(settings.num_shards)
    folder, lock = temporary_folder()
    try:
        partition = write_split(rows, settings, folder, stage.advance)
    except BaseException:
        discard(folder, os.getpid(), lock)
        raise
    weakref.finalize(partition, discard, folder, os.getpid(), lock)
    return partition


class LazyRows(AbstractPartition):
    """Rows that a function loads, shard by shard, in the process that needs them.

    Args:
        load: a function from a shard's number to its rows, in any form in memory that `split`
            takes. It is called in the process that works on the shard, perhaps on another
            machine, and must return the same rows every time. Rows must have been split at random.
        num_shards: number of shards.

    >>> rows = LazyRows(lambda shard: {"y": np.random.default_rng(shard).normal(size=100)}, 4)
    >>> rows.load(3).num_rows
    100
    """

    def __init__(self, load: Callable[[int], Any], num_shards: int):
        check_loader(load, num_shards, "rows")
        self._load = load
        self._num_shards = int(num_shards)

    @property
    def num_shards(self) -> int:
        return self._num_shards

    def load(self, shard: int) -> Shard:
        """Return one shard, padded by at most 1/16: shards of similar sizes share a shape."""
        try:
            loaded = as_rows(self._load(shard))
        except Exception as error:
            raise ValueError(f"shard {shard} could not be loaded: {error}") from error
        # copies: the user's function may reuse its arrays
        rows = {name: np.array(native(array)) for name, array in loaded.items()}
        count = len(next(iter(rows.values())))
        step = 1 << max(0, count.bit_length() - 5)
        return padded(rows, -(-count // step) * step)

    def __repr__(self) -> str:
        return f"LazyRows({self.num_shards} shards)"


def check_seed(seed: Any) -> None:
    """Refuse a seed that is not a non-negative integer."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, e.g. seed=0; got {seed!r}.")


def _labels(labels: Any, arrays: Rows, num_rows: int, argument: str) -> np.ndarray:
    """Return integer labels, one per row."""
    if isinstance(labels, str):
        if labels not in arrays:
            raise ValueError(
                f"{argument} must name one of the arrays of rows, {list(arrays)}; got {labels!r}."
            )
        labels = arrays[labels]
    labels = np.asarray(labels)
    if labels.shape != (num_rows,):
        raise ValueError(
            f"{argument} must give one label per row, shape ({num_rows},); "
            f"got shape {labels.shape}."
        )
    try:
        return np.unique(labels, return_inverse=True)[1]
    except TypeError:
        raise TypeError(
            f"{argument} must be labels of one type, all numbers or all strings; got a mixture, "
            "e.g. missing values among strings. Give missing values a label of their own."
        ) from None
