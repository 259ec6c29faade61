"""Rows that do not fit into memory: split into files, some for each shard.

Of every K consecutive rows, each shard gets one, at random. So the shards are alike however the
rows are sorted, their sizes differ by at most one, and one pass over the rows is enough. Rows that
are split by groups are assigned as those in memory are, after a pass over their labels.

```
shards/
  written-by-vcmc.txt  marks the folder as one of vcmc's
  00003.1.bin          shard 3, column 1: numbers in their own type, one row after the other
  groups.npz           labels and shards of groups, if the rows were split by groups
  rows.json            sizes of the shards, names and types of the columns, and what was split
```
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import jax
import numpy as np

from .batches import (
    batches,
    changed_rows,
    check_outside,
    columns_of,
    distinct_batches,
    fingerprint_rows,
)
from .categories import Levels, level_numbers
from .columns import Columns, check_sources, choose_columns, source_columns
from .folders import claim, open_like_folder
from .group_labels import SplitGroups, assign_groups, index_groups, label_source
from .rows import as_rows, native
from .shard import AbstractPartition, Shard, check_num_shards, padded_length
from .shard_writer import ShardAssignment, ShardWriter, rows_checksum, shard_file

VERSION = 2  # of the format
MANIFEST = "rows.json"  # written last: a folder without it is incomplete
MAX_NAMED = 3  # files or arrays in a message
OWN_FILES = re.compile(
    r"\d{5,}\.\d+\.bin|groups\.npz|rows\.json\.new"
)  # names of all files but the marker


class FilePartition(AbstractPartition):
    """Rows that were split into the files of a folder. `split` returns it.

    Every process that can read the folder can load any shard.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        try:
            manifest = json.loads((self.folder / MANIFEST).read_text())
            if manifest["version"] != VERSION:
                raise ValueError(f"version {manifest['version']} in place of {VERSION}")
            self.sizes: list[int] = manifest["sizes"]
            self.columns = {
                name: (dtype, tuple(shape)) for name, (dtype, shape) in manifest["columns"].items()
            }
            self.source: dict[str, Any] = manifest["source"]
            self._checksums: list[list[int]] = manifest["checksums"]
            self._groups_checksum: int | None = manifest.get("groups_checksum")
            levels = manifest.get("levels", {})
            self.levels = {name: np.array(labels) for name, labels in levels.items()}
        except (OSError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.folder} must be a folder from vcmc.split with a readable {MANIFEST}; "
                f"got {type(error).__name__}: {error}. Delete the folder and split the rows again: "
                "vcmc.split(rows, num_shards, folder=...)."
            ) from None
        self._verified: set[int] = set()  # shards whose files this process has checked

    @property
    def num_shards(self) -> int:
        return len(self.sizes)

    def load(self, shard: int) -> Shard:
        size = self.sizes[shard]
        length = padded_length(size, max(self.sizes))
        rows = {}
        for column, (name, (dtype, shape)) in enumerate(self.columns.items()):
            array = np.empty((length, *shape), dtype)
            with shard_file(self.folder, shard, column).open("rb") as file:
                _read(file, array[:size])
            if shard not in self._verified:
                _verify(file.name, array[:size], self._checksums[shard][column])
            array[size:] = array[:1]
            rows[name] = jax.device_put(native(array))  # jnp.asarray would compile a program
        self._verified.add(shard)
        return Shard(rows, jax.device_put((np.arange(length) < size).astype(float)))

    def read_groups(self) -> SplitGroups | None:
        """Return the groups by which the rows were split, if they were."""
        if self._groups_checksum is None:
            return None
        return SplitGroups.read(self.folder, self.source["groups"], self._groups_checksum)

    def __repr__(self) -> str:
        return (
            f"FilePartition({sum(self.sizes)} rows of {list(self.columns)} in {len(self.sizes)} "
            f"shards of {min(self.sizes)} to {max(self.sizes)} rows)"
        )


def _read(file: BinaryIO, array: np.ndarray) -> None:
    num_bytes = file.readinto(array.reshape(-1).view(np.uint8))  # type: ignore[attr-defined]
    if num_bytes != array.nbytes or file.read(1):
        raise ValueError(
            f"{file.name} must hold {array.nbytes} bytes of rows; "
            f"got {os.stat(file.name).st_size}. Delete its folder and split the rows again."
        )


def _verify(name: str, array: np.ndarray, checksum: int) -> None:
    if rows_checksum(array) != checksum:
        raise ValueError(
            f"{name} is damaged: its rows are not those that were written. Delete its folder and "
            "split the rows again."
        )


class SplitSettings(NamedTuple):
    """How rows are split into files, as the arguments of `split` say."""

    num_shards: int
    seed: int
    columns: Columns | None
    groups: str | None
    levels: dict[str, list[str]] | None = None

    def plain(self) -> dict[str, Any]:
        """Return the settings as they are read from a file."""
        return json.loads(json.dumps(self._asdict(), default=int))


def split_to_files(
    rows: Any,
    settings: SplitSettings,
    folder: Path,
    advance: Callable[[int], None] = lambda _: None,
) -> FilePartition:
    """Split rows that are read in batches into the files of a folder.

    `advance` is called with the number of rows of every batch. A folder that already holds the
    same split of the same rows is reused.
    """
    check_num_shards(settings.num_shards)
    if (folder / MANIFEST).exists():
        return _existing_split(folder, settings.plain(), rows)
    check_outside(folder, rows)
    with claim(folder):
        if (folder / MANIFEST).exists():  # another process has just finished
            return _existing_split(folder, settings.plain(), rows)
        source = {"rows": fingerprint_rows(rows)}
        return write_split(rows, settings, folder, advance, source)


def write_split(
    rows: Any,
    settings: SplitSettings,
    folder: Path,
    advance: Callable[[int], None],
    source: Mapping[str, Any] = MappingProxyType({}),
) -> FilePartition:
    """Split rows into the files of a folder that belongs to this process.

    Args:
        rows: rows that are read in batches.
        settings: how to split them.
        folder: the folder.
        advance: called with the number of rows of every batch.
        source: what the folder is to record beside the settings.
    """
    for file in folder.iterdir():  # of a split that was interrupted
        if OWN_FILES.fullmatch(file.name):
            file.unlink()
    levels = levels_in_files(rows, settings)
    writer, groups = _write_rows(rows, settings, levels, folder, advance)
    manifest: dict[str, Any] = {
        "version": VERSION,
        "sizes": writer.sizes.tolist(),
        "columns": writer.columns,
        "checksums": writer.checksums,
        "source": {**settings.plain(), **source},
    }
    if levels:
        manifest["levels"] = {name: np.asarray(own).tolist() for name, own in levels.items()}
    if groups:
        manifest["groups_checksum"] = groups.write(folder)
    new = folder / (MANIFEST + ".new")
    with open_like_folder(new, "w") as file:
        file.write(json.dumps(manifest))
    new.replace(folder / MANIFEST)
    return FilePartition(folder)


def levels_in_files(rows: Any, settings: SplitSettings) -> Levels:
    """Return the levels of columns of text: those of the settings, or all that occur, in order."""
    is_text = columns_of(rows)
    check_sources(settings.columns, is_text)
    sources = settings.columns or {name: name for name in is_text}
    known = settings.levels or {}
    levels: dict[str, np.ndarray] = {}
    for name, source in sources.items():
        if not isinstance(source, str) or not is_text.get(source) or name == settings.groups:
            continue
        if name in known:
            levels[name] = np.array(known[name])
            continue
        labels: set[str] = set()
        for values, codes in distinct_batches(rows, source):
            labels.update(str(value) for value in values[np.unique(codes[codes >= 0])])
        levels[name] = np.array(sorted(labels))
    return levels


def _write_rows(
    rows: Any,
    settings: SplitSettings,
    levels: Levels,
    folder: Path,
    advance: Callable[[int], None],
) -> tuple[ShardWriter, SplitGroups | None]:
    """Write rows to the files of their shards; return what was written, and the groups, if any."""
    num_shards, seed, columns, column, _ = settings
    assignment = ShardAssignment(num_shards, seed)
    writer = ShardWriter(folder, num_shards)
    groups = None
    encoders: dict[str, Any] = {
        label_source(name, columns): partial(level_numbers, name, levels=own)
        for name, own in levels.items()
    }
    if column is not None:
        index = index_groups(rows, column, columns)
        groups = SplitGroups(column, index, assign_groups(index.counts, num_shards, seed))
        encoders[label_source(column, columns)] = index.numbers
    wanted = None if columns is None else source_columns(columns)
    for batch in batches(rows, encoders, wanted):
        arrays = as_rows(choose_columns(batch, columns), writer.num_rows)
        count = len(next(iter(arrays.values())))
        writer.write(
            arrays, groups.shards[arrays[groups.column]] if groups else assignment.next(count)
        )
        advance(count)
    writer.flush()
    if writer.num_rows == 0:
        raise ValueError("rows must hold at least one row; got none.")
    if not 1 <= num_shards <= writer.num_rows:
        raise ValueError(
            f"num_shards must lie between 1 and the number of rows ({writer.num_rows}); "
            f"got {num_shards}. Try fewer shards."
        )
    return writer, groups


def _existing_split(folder: Path, settings: dict[str, Any], rows: Any) -> FilePartition:
    """Return the split that a folder holds; refuse one of other rows or settings."""
    partition = FilePartition(folder)
    before = partition.source
    differing = [name for name in settings if before.get(name) != settings[name]]
    if differing:
        raise ValueError(
            f"{folder} holds another split: {', '.join(differing)} differ "
            f"(now {[settings[name] for name in differing]}, "
            f"then {[before.get(name) for name in differing]}). "
            "Give the same rows, columns and model as then, or use another folder."
        )
    if changed := changed_rows(before.get("rows", {}), rows):
        names = [name for name in changed[:MAX_NAMED] if name]  # a single file has no name
        raise ValueError(
            f"the rows have changed since they were split into {folder}"
            + (f": {', '.join(names)}" if names else "")
            + (f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else "")
            + ". Delete the folder to split them again, or use another."
        )
    return partition
