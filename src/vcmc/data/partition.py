"""Deal rows into shards: every row in exactly one shard."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..progress import ProgressDisplay, ProgressMode
from .files import Columns, FilePartition, deal, is_large
from .rows import Rows, as_rows
from .shard import AbstractPartition, InMemoryShards, Shard, check_loader, padded, padded_length


@dataclass(frozen=True, eq=False)
class Partition(AbstractPartition):
    """Rows in memory and the shard that each belongs to. Made by `split`."""

    rows: dict[str, np.ndarray]
    members: tuple[np.ndarray, ...]
    """For each shard, the indices of its rows."""

    in_memory = True

    @property
    def num_shards(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> list[int]:
        """Number of rows of each shard."""
        return [len(indices) for indices in self.members]

    def load(self, shard: int) -> Shard:
        """The rows of one shard, padded with copies of its first row to a shape that shards share."""
        indices = self.members[shard]
        length = padded_length(len(indices), max(self.sizes))
        return padded({name: array[indices] for name, array in self.rows.items()}, length)

    def is_small(self, max_bytes: int) -> bool:
        largest = max(self.sizes)
        row_bytes = 8 + sum(array.nbytes // len(array) for array in self.rows.values())
        one_shape = all(padded_length(size, largest) == largest for size in self.sizes)
        return one_shape and largest * self.num_shards * row_bytes <= max_bytes

    def part(self, shards: Sequence[int]) -> InMemoryShards:
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
    folder: str | Path | None = None,
    progress: ProgressMode = True,
) -> Partition | FilePartition:
    """Deal rows into shards whose sizes differ by at most one, in random order.

    Rows that need not fit into memory are read once, batch by batch, and dealt into files, from where shards are loaded when they are
    needed: Parquet files, Zarr stores, and memory-mapped arrays.

    Args:
        rows: a mapping of arrays with one leading axis, or a pandas or polars frame; or the path of a Parquet file, of a folder of
            them, or of a Zarr store; or a mapping of memory-mapped arrays.
        num_shards: how many shards, from 1 to the number of rows.
        seed: seed of the shuffle.
        stratify: a column's name, or one level per row: each level is spread over all shards as
            evenly as it goes. Use it where a level is rare.
        groups: a column's name, or one label per row: rows with the same label stay in one shard.
            Sizes then differ by as much as the groups' sizes demand.
        columns: the arrays to make of a file's columns: `{"y": "clicked", "x": ["age", "income"]}`; by default an array for each.
        folder: where to deal rows that are read batch by batch; by default a temporary folder. On a cluster, one that all machines see.
        progress: show how many rows were dealt batch by batch, if standard error is a terminal; "lines" writes plain lines elsewhere.

    >>> import numpy as np
    >>> split({"y": np.arange(10.0)}, 3).sizes
    [4, 3, 3]
    >>> partition = split({"y": np.arange(9.0)}, 3, groups=[1, 1, 1, 2, 2, 2, 3, 3, 3])
    >>> sorted(members.tolist() for members in partition.members)
    [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    """
    if folder is not None or columns is not None or is_large(rows):
        if stratify is not None or groups is not None:
            raise ValueError(
                "rows that are read batch by batch are dealt at random: stratify and groups are for rows in memory."
            )
        check_seed(seed)
        with ProgressDisplay(progress) as bars:
            stage = bars.stage("deal rows", None)
            found = _dealt(
                rows if is_large(rows) else as_rows(rows),
                num_shards,
                seed,
                columns,
                folder,
                stage.advance,
            )
            stage.finish()
        return found
    arrays = as_rows(rows)
    num_rows = len(next(iter(arrays.values())))
    if not isinstance(num_shards, int | np.integer):
        raise TypeError(f"num_shards must be a whole number; got {num_shards!r}.")
    check_seed(seed)
    if not 1 <= num_shards <= num_rows:
        raise ValueError(
            f"num_shards must lie between 1 and the number of rows ({num_rows}); got {num_shards!r}. "
            "Try fewer shards: each needs rows enough to say something about every parameter."
        )
    if stratify is not None and groups is not None:
        raise ValueError(
            "split takes stratify or groups, not both: a group cannot be kept whole and spread. "
            "Leave one of them out."
        )
    generator = np.random.default_rng(seed)
    if groups is not None:
        labels = _labels(groups, arrays, num_rows, "groups")
        members = _deal_groups(labels, int(num_shards), generator)
    else:
        order = generator.permutation(num_rows)
        if stratify is not None:
            levels = _labels(stratify, arrays, num_rows, "stratify")
            order = order[np.argsort(levels[order], kind="stable")]
        members = [order[shard::num_shards] for shard in range(num_shards)]
    return Partition(arrays, tuple(np.sort(indices) for indices in members))


def _dealt(
    rows: Any,
    num_shards: int,
    seed: int,
    columns: Columns | None,
    folder: str | Path | None,
    advance: Callable[[int], None],
) -> FilePartition:
    if folder is not None:
        return deal(rows, num_shards, Path(folder), seed, columns, advance)
    temporary = tempfile.mkdtemp(prefix="vcmc-rows-")
    try:
        found = deal(rows, num_shards, Path(temporary), seed, columns, advance)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, temporary, ignore_errors=True)
    return found


class LazyRows(AbstractPartition):
    """Rows of which each shard is loaded when it is needed, by whoever needs it.

    Args:
        load: a function from a shard's number to its rows, in any form that `split` takes in memory. It is called in the process that works
            on the shard, perhaps on another machine, and must return the same rows every time. Rows must have been dealt at random.
        num_shards: how many shards there are.

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
        """The rows of one shard, padded by a 16th at most, so that shards of about one size share a shape."""
        try:
            rows = as_rows(self._load(shard))
        except Exception as error:
            raise ValueError(f"shard {shard} could not be loaded: {error}") from error
        count = len(next(iter(rows.values())))
        step = 1 << max(0, count.bit_length() - 5)
        return padded(rows, -(-count // step) * step)

    def __repr__(self) -> str:
        return f"LazyRows({self.num_shards} shards)"


def check_seed(seed: Any) -> None:
    """Refuse what is not a seed."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of 0 or more; got {seed!r}.")


def _labels(labels: Any, arrays: Rows, num_rows: int, argument: str) -> np.ndarray:
    """Whole-number labels, one per row."""
    if isinstance(labels, str):
        if labels not in arrays:
            raise ValueError(f"{argument}={labels!r} is not among the rows' arrays {list(arrays)}.")
        labels = arrays[labels]
    labels = np.asarray(labels)
    if labels.shape != (num_rows,):
        raise ValueError(
            f"{argument} must give one label per row, shape ({num_rows},); got shape {labels.shape}."
        )
    try:
        return np.unique(labels, return_inverse=True)[1]
    except TypeError:
        raise TypeError(
            f"{argument} must be labels of one kind, all numbers or all strings; got a mixture, such as "
            "missing values among strings. Give the missing ones a label of their own."
        ) from None


def _deal_groups(
    labels: np.ndarray, num_shards: int, generator: np.random.Generator
) -> list[np.ndarray]:
    """Give each group, the largest first, to the shard with the fewest rows so far."""
    counts = np.bincount(labels)
    if num_shards > len(counts):
        raise ValueError(
            f"num_shards must not exceed the number of groups ({len(counts)}), which stay whole; "
            f"got {num_shards}."
        )
    shuffled = generator.permutation(len(counts))
    loads = np.zeros(num_shards, int)
    shard_of = np.empty(len(counts), int)
    for group in shuffled[np.argsort(-counts[shuffled], kind="stable")]:
        shard_of[group] = np.argmin(loads)
        loads[shard_of[group]] += counts[group]
    return [np.flatnonzero(shard_of[labels] == shard) for shard in range(num_shards)]
