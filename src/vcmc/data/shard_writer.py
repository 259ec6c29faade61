"""Write the rows of a split to the files of their shards, through a buffer."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .columns import Batch
from .folders import open_like_folder

BUFFER_BYTES = 2**26  # of rows held before they are written: opening files takes time


def shard_file(folder: Path, shard: int, column: int) -> Path:
    """Return the file of a column of a shard."""
    # by the column's number: its name may be no file name, e.g. "km/h"
    return folder / f"{shard:05}.{column}.bin"


def rows_checksum(array: np.ndarray, before: int = 0) -> int:
    """Return the checksum of rows that follow others, whose checksum is `before`."""
    return zlib.crc32(array.reshape(-1).view(np.uint8).data, before)


class ShardAssignment:
    """The random sequence of the shards of consecutive rows: every K rows are a permutation."""

    def __init__(self, num_shards: int, seed: int):
        self._num_shards = num_shards
        self._generator = np.random.default_rng(seed)
        self._upcoming = np.empty(0, int)

    def next(self, count: int) -> np.ndarray:
        """Return the shards of the next `count` rows."""
        num_missing = count - len(self._upcoming)
        if num_missing > 0:
            rounds = np.tile(np.arange(self._num_shards), (-(-num_missing // self._num_shards), 1))
            permuted = self._generator.permuted(rounds, axis=1).ravel()
            self._upcoming = np.concatenate([self._upcoming, permuted])
        shards, self._upcoming = self._upcoming[:count], self._upcoming[count:]
        return shards


class ShardWriter:
    """Append rows to the files of their shards, through a buffer.

    Attributes:
        num_rows: rows written so far.
        sizes: rows of each shard.
        columns: type and shape of the entries of each column.
        checksums: of the files of each shard, by column.
    """

    def __init__(self, folder: Path, num_shards: int):
        self.num_rows = 0
        self.sizes = np.zeros(num_shards, int)
        self.columns: dict[str, Any] = {}
        self.checksums: list[list[int]] = []
        self._folder = folder
        self._buffers: list[list[Batch]] = [[] for _ in range(num_shards)]
        self._num_buffered_bytes = 0

    def write(self, arrays: Batch, shards: np.ndarray) -> None:
        """Write rows, given the shard of each."""
        arrays = {  # in the byte order of this machine
            name: array.astype(array.dtype.newbyteorder("="), copy=False)
            for name, array in arrays.items()
        }
        self._check_columns(arrays)
        by_shard = np.argsort(shards, kind="stable")
        counts = np.bincount(shards, minlength=len(self.sizes))
        ends = np.cumsum(counts)[:-1]
        parts = {name: np.split(array[by_shard], ends) for name, array in arrays.items()}
        for shard in np.flatnonzero(counts):
            self._buffers[shard].append({name: part[shard] for name, part in parts.items()})
        self.sizes += counts
        self.num_rows += len(shards)
        self._num_buffered_bytes += sum(array.nbytes for array in arrays.values())
        if self._num_buffered_bytes > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to the files."""
        for shard, parts in enumerate(self._buffers):
            for column, name in enumerate(self.columns if parts else ()):
                array = np.concatenate([part[name] for part in parts])
                with open_like_folder(shard_file(self._folder, shard, column), "ab") as file:
                    array.tofile(file)
                self.checksums[shard][column] = rows_checksum(array, self.checksums[shard][column])
            parts.clear()
        self._num_buffered_bytes = 0

    def _check_columns(self, arrays: Batch) -> None:
        columns = {name: [array.dtype.str, list(array.shape[1:])] for name, array in arrays.items()}
        if not self.columns:
            self.columns = columns
            self.checksums = [[0] * len(columns) for _ in self.sizes]
        elif columns != self.columns:
            raise ValueError(
                f"all rows must have the same columns, {self.columns}; got {columns} from row "
                f"{self.num_rows} on. Give all files the same columns and types."
            )
