"""The rows that a run directory keeps, so that its posterior can be updated.

Rows that were given in memory are written to it. Of rows that a user has split into files, it keeps
the folder's name; rows that a function loads are not kept.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..data.categories import NO_LEVELS, Levels
from ..data.files import MANIFEST, FilePartition
from ..data.grouped import GroupedPartition
from ..data.partition import Partition
from ..data.shard import AbstractPartition
from ..data.shard_files import plain_partition, plain_rows, write_shards
from ..data.shard_list import BatchShard
from ..data.weighted import WeightedPartition
from ..errors import StoreError
from ..results.checked_files import as_store_error, read_json, write_json
from ..results.states import ELSEWHERE
from ..results.store import Store


def keep_rows(store: Store, partition: AbstractPartition, levels: Levels = NO_LEVELS) -> None:
    """Write the rows of a run to its directory, unless they are in files already."""
    plain, grouped = plain_partition(partition), _grouped(partition)
    if isinstance(plain, FilePartition):
        groups = plain.read_groups()
        if grouped is None or (groups and groups.column == grouped.column):
            if plain.folder != store.rows:
                write_json(store.folder / ELSEWHERE, {"folder": str(plain.folder)})
            return
    elif not isinstance(plain, Partition):
        return
    if not _are_kept(store, plain):
        with as_store_error(store.rows):
            write_partition(store.rows, partition, levels)


def _are_kept(store: Store, partition: Partition | FilePartition) -> bool:
    """Return whether the rows of a run, whose identity was checked, are in its directory."""
    try:
        return FilePartition(store.rows).sizes == partition.sizes
    except ValueError:
        return False


def write_partition(
    folder: Path, partition: AbstractPartition, levels: Levels = NO_LEVELS
) -> FilePartition:
    """Write the shards of a partition to files, one after the other."""
    plain = plain_partition(partition)
    shards = range(plain.num_shards)
    grouped = _grouped(partition)
    if grouped is None:
        rows = (plain_rows(plain, shard) for shard in shards)
        return write_shards(folder, rows, len(shards), levels=levels)
    column = grouped.column

    def numbered(shard: int) -> dict[str, np.ndarray]:
        rows = plain_rows(plain, shard)
        return {**rows, column: grouped.group_numbers(rows[column])}

    return write_shards(folder, map(numbered, shards), len(shards), column, grouped.labels, levels)


def write_batch(
    folder: Path,
    shards: Sequence[Mapping[str, np.ndarray]],
    column: str | None,
    levels: Levels = NO_LEVELS,
) -> list[BatchShard]:
    """Write the rows of shards to files; the column of groups holds labels."""
    if column is None:
        return batch_shards(write_shards(folder, shards, len(shards), levels=levels))
    labels = np.unique(np.concatenate([np.unique(rows[column]) for rows in shards]))
    numbered = ({**rows, column: np.searchsorted(labels, rows[column])} for rows in shards)
    return batch_shards(write_shards(folder, numbered, len(shards), column, labels, levels))


def _grouped(partition: AbstractPartition) -> GroupedPartition | None:
    if isinstance(partition, WeightedPartition):
        partition = partition.partition
    return partition if isinstance(partition, GroupedPartition) else None


def batch_shards(partition: AbstractPartition) -> list[BatchShard]:
    """Return the shards of a partition, to be listed with those of others.

    A partition by groups is one of files, which have the labels of groups.
    """
    plain = plain_partition(partition)
    groups = plain.read_groups() if isinstance(plain, FilePartition) else None
    labels = groups.groups.labels if groups else None
    return [BatchShard(plain, shard, labels) for shard in range(plain.num_shards)]


def kept_partition(store: Store) -> FilePartition:
    """Return the rows of a run from its directory; raise `StoreError` if they are not there."""
    folder = store.rows
    if not (folder / MANIFEST).exists() and (store.folder / ELSEWHERE).exists():
        folder = Path(read_json(store.folder / ELSEWHERE)["folder"])
    if not (folder / MANIFEST).exists():
        raise StoreError(
            f"{store.folder} does not have the rows of its run: they were loaded by a function, or "
            f"split into files that are no longer in {folder}, or the run was made by vcmc 0.1. "
            "Pass them: vcmc.update(store, model, new_rows, rows=rows)."
        )
    return FilePartition(folder)
