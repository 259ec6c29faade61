"""Write shards of rows, of whatever partition, to a folder that `FilePartition` reads.

A run directory keeps its rows so, in order that a posterior can be updated later.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .categories import NO_LEVELS, Levels
from .files import MANIFEST, OWN_FILES, VERSION, FilePartition
from .folders import claim, open_like_folder
from .group_labels import GroupIndex, SplitGroups
from .grouped import TiledPartition
from .partition import Partition
from .shard import AbstractPartition, Shard
from .shard_writer import ShardWriter, shard_file
from .weighted import WeightedPartition

Rows = Mapping[str, np.ndarray]


def plain_partition(partition: AbstractPartition) -> AbstractPartition:
    """Return the partition below those that lay rows out by groups or give them weights."""
    while isinstance(partition, TiledPartition | WeightedPartition):
        partition = partition.partition
    return partition


def rows_of(shard: Shard) -> dict[str, np.ndarray]:
    """Return the rows of a shard of a plain partition, without padding."""
    is_row = np.asarray(shard.weights) > 0
    return {name: np.asarray(array)[is_row] for name, array in shard.rows.items()}


def plain_rows(partition: AbstractPartition, shard: int) -> dict[str, np.ndarray]:
    """Return the rows of a shard of a plain partition in their own types, where it has them."""
    if isinstance(partition, Partition):
        indices = partition.members[shard]
        return {name: array[indices] for name, array in partition.rows.items()}
    return rows_of(partition.load(shard))


def write_shards(
    folder: Path,
    shards: Iterable[Rows],
    num_shards: int,
    group_column: str | None = None,
    group_labels: np.ndarray | None = None,
    levels: Levels = NO_LEVELS,
) -> FilePartition:
    """Write the rows of shards to the files of a folder, and force them to the disk.

    Args:
        folder: the folder, which is new, empty or vcmc's own.
        shards: the rows of every shard.
        num_shards: how many there are.
        group_column: the column of groups, which holds numbers.
        group_labels: the labels of groups 0, 1, ….
        levels: the levels of columns that were text.
    """
    with claim(folder):
        for file in folder.iterdir():
            if OWN_FILES.fullmatch(file.name) or file.name == MANIFEST:
                file.unlink()
        writer = ShardWriter(folder, num_shards)
        counts = np.zeros(0 if group_labels is None else len(group_labels), int)
        shard_of_group = np.full(len(counts), -1)
        for shard, rows in enumerate(shards):
            size = len(next(iter(rows.values())))
            writer.write(dict(rows), np.full(size, shard))
            if group_column is not None:
                counts += np.bincount(rows[group_column], minlength=len(counts))
                shard_of_group[rows[group_column]] = shard
        writer.flush()
        manifest: dict[str, Any] = {
            "version": VERSION,
            "sizes": writer.sizes.tolist(),
            "columns": writer.columns,
            "checksums": writer.checksums,
            "source": {
                "num_shards": num_shards,
                "seed": 0,
                "columns": None,
                "groups": group_column,
                "levels": None,
            },
        }
        if known := {name: own for name, own in levels.items() if name in writer.columns}:
            manifest["levels"] = {name: np.asarray(own).tolist() for name, own in known.items()}
        if group_column is not None and group_labels is not None:
            groups = SplitGroups(group_column, GroupIndex(group_labels, counts), shard_of_group)
            manifest["groups_checksum"] = groups.write(folder)
        for shard in range(num_shards):
            for column in range(len(writer.columns)):
                _sync(shard_file(folder, shard, column))
        new = folder / (MANIFEST + ".new")
        with open_like_folder(new, "w") as file:
            file.write(json.dumps(manifest))
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / MANIFEST)
        _sync(folder)
    return FilePartition(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
