"""Rows that do not fit into memory: read in batches, and split into files, some for each shard.

Of every K consecutive rows, each shard gets one, at random. So the shards are alike however the
rows are sorted, their sizes differ by at most one, and one pass over the rows is enough.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax.numpy as jnp
import numpy as np

from .rows import as_rows
from .shard import AbstractPartition, Shard, check_num_shards, padded_length

BATCH_BYTES = 2**24  # of rows read at once
BUFFER_BYTES = 2**26  # of rows held before they are written: opening files takes time
MANIFEST = "rows.json"  # written last: a folder without it is incomplete
PARQUET = (".parquet", ".pq")  # suffixes of Parquet files

Batch = dict[str, np.ndarray]
Columns = Mapping[str, str | Sequence[str]]


class FilePartition(AbstractPartition):
    """Rows that were split into the files of a folder. `split` returns it.

    Every process that can read the folder can load any shard.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        try:
            manifest = json.loads((self.folder / MANIFEST).read_text())
            self.sizes: list[int] = manifest["sizes"]
            self.columns = {
                name: (dtype, tuple(shape)) for name, (dtype, shape) in manifest["columns"].items()
            }
            self.source: dict[str, Any] = manifest["source"]
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"{self.folder} must be a folder from vcmc.split with a readable {MANIFEST}; "
                f"got {type(error).__name__}: {error}. Delete the folder and split the rows again: "
                "vcmc.split(rows, num_shards, folder=...)."
            ) from None

    @property
    def num_shards(self) -> int:
        return len(self.sizes)

    def load(self, shard: int) -> Shard:
        size = self.sizes[shard]
        length = padded_length(size, max(self.sizes))
        rows = {}
        for name, (dtype, shape) in self.columns.items():
            array = np.empty((length, *shape), dtype)
            with _file(self.folder, shard, name).open("rb") as file:
                _read(file, array[:size])
            array[size:] = array[:1]
            rows[name] = jnp.asarray(array)
        return Shard(rows, jnp.asarray(np.arange(length) < size, float))

    def __repr__(self) -> str:
        return (
            f"FilePartition({sum(self.sizes)} rows of {list(self.columns)} in {len(self.sizes)} "
            f"shards of {min(self.sizes)} to {max(self.sizes)} rows)"
        )


def _file(folder: Path, shard: int, name: str) -> Path:
    return folder / f"{shard:05}.{name}.bin"


def _read(file: BinaryIO, array: np.ndarray) -> None:
    num_bytes = file.readinto(array.reshape(-1).view(np.uint8))  # type: ignore[attr-defined]
    if num_bytes != array.nbytes or file.read(1):
        raise ValueError(
            f"{file.name} must hold {array.nbytes} bytes of rows; "
            f"got {os.stat(file.name).st_size}. Delete its folder and split the rows again."
        )


def is_large(rows: Any) -> bool:
    """Return whether rows are read in batches: a path, or arrays that are not in memory."""
    if isinstance(rows, str | os.PathLike):
        return True
    return isinstance(rows, Mapping) and any(_is_on_disk(array) for array in rows.values())


def _is_on_disk(array: Any) -> bool:
    """Return whether an array is memory-mapped, or is read by slices, as in Zarr and HDF5."""
    if isinstance(array, np.ndarray):
        return isinstance(array, np.memmap) or isinstance(array.base, np.memmap)
    return hasattr(array, "shape") and hasattr(array, "chunks")


def split_to_files(
    rows: Any,
    num_shards: int,
    folder: Path,
    seed: int,
    columns: Columns | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> FilePartition:
    """Split rows that are read in batches into the files of a folder.

    `advance` is called with the number of rows of every batch. A folder that already holds the
    same split is reused.
    """
    check_num_shards(num_shards)
    source = {
        "num_shards": int(num_shards),
        "seed": int(seed),
        "columns": columns,
        "rows": _source_of(rows),
    }
    source = json.loads(json.dumps(source))  # as it will be read
    if (folder / MANIFEST).exists():
        return _existing_split(folder, source)
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.bin"):  # of a split that was interrupted
        file.unlink()
    assignment = _ShardAssignment(num_shards, seed)
    writer = _ShardWriter(folder, num_shards)
    for batch in batches(rows):
        arrays = as_rows(choose_columns(batch, columns), writer.num_rows)
        count = len(next(iter(arrays.values())))
        writer.write(arrays, assignment.next(count))
        advance(count)
    writer.flush()
    if not 1 <= num_shards <= writer.num_rows:
        raise ValueError(
            f"num_shards must lie between 1 and the number of rows ({writer.num_rows}); "
            f"got {num_shards}. Try fewer shards."
        )
    manifest = {"sizes": writer.sizes.tolist(), "columns": writer.columns, "source": source}
    (folder / (MANIFEST + ".new")).write_text(json.dumps(manifest))
    (folder / (MANIFEST + ".new")).replace(folder / MANIFEST)
    return FilePartition(folder)


def _existing_split(folder: Path, source: dict[str, Any]) -> FilePartition:
    """Return the split that a folder holds; refuse one of other rows or settings."""
    partition = FilePartition(folder)
    differing = [name for name in source if partition.source.get(name) != source[name]]
    if differing:
        raise ValueError(
            f"{folder} holds another split: {', '.join(differing)} differ "
            f"(now {[source[name] for name in differing]}, "
            f"then {[partition.source.get(name) for name in differing]}). "
            "Delete the folder, or use another."
        )
    return partition


class _ShardAssignment:
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


class _ShardWriter:
    """Append rows to the files of their shards, through a buffer.

    Attributes:
        num_rows: rows written so far.
        sizes: rows of each shard.
        columns: type and shape of the entries of each column.
    """

    def __init__(self, folder: Path, num_shards: int):
        self.num_rows = 0
        self.sizes = np.zeros(num_shards, int)
        self.columns: dict[str, Any] = {}
        self._folder = folder
        self._buffers: list[list[Batch]] = [[] for _ in range(num_shards)]
        self._num_buffered_bytes = 0

    def write(self, arrays: Batch, shards: np.ndarray) -> None:
        """Write rows, given the shard of each."""
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
            for name in parts[0] if parts else ():
                with _file(self._folder, shard, name).open("ab") as file:
                    np.concatenate([part[name] for part in parts]).tofile(file)
            parts.clear()
        self._num_buffered_bytes = 0

    def _check_columns(self, arrays: Batch) -> None:
        columns = {name: [array.dtype.str, list(array.shape[1:])] for name, array in arrays.items()}
        if not self.columns:
            self.columns = columns
        elif columns != self.columns:
            raise ValueError(
                f"all rows must have the same columns, {self.columns}; got {columns} from row "
                f"{self.num_rows} on. Give all files the same columns and types."
            )


def _source_of(rows: Any) -> Any:
    """Return names, sizes and dates of files, or shapes of arrays, by which changes are noticed."""
    if isinstance(rows, str | os.PathLike):
        files = [path for path in sorted(_files_below(Path(rows))) if path.is_file()]
        return {
            str(path.absolute()): [path.stat().st_size, path.stat().st_mtime_ns] for path in files
        }
    return {str(name): [str(array.dtype), list(array.shape)] for name, array in rows.items()}


def _files_below(path: Path) -> Iterable[Path]:
    if not path.exists():
        raise FileNotFoundError(
            "rows must be a Parquet file, a folder of them, or a Zarr store; "
            f"there is no {path} (the current folder is {Path.cwd()})."
        )
    return path.rglob("*") if path.is_dir() else [path]


def batches(rows: Any) -> Iterator[Batch]:
    """Yield rows that need not be in memory, in batches of about 16 MB."""
    if isinstance(rows, Mapping):
        return _slices(rows)
    path = Path(rows)
    files = sorted(file for file in _files_below(path) if file.suffix in PARQUET)
    if files:
        return _parquet(files)
    if any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return _slices(_zarr(path))
    raise ValueError(
        f"rows must be a Parquet file ({' or '.join(PARQUET)}), a folder of them, or a Zarr store; "
        f"got {path}. Pass other files as arrays, e.g. numpy.load(path, mmap_mode='r'), which does "
        "not load them whole."
    )


def choose_columns(batch: Batch, columns: Columns | None) -> Batch:
    """Return the arrays that are made of the requested columns."""
    if columns is None:
        return batch
    required = {
        column
        for source in columns.values()
        for column in ([source] if isinstance(source, str) else source)
    }
    if missing := sorted(required - set(batch)):
        raise ValueError(
            f"columns names {missing}, which are not in the rows; their columns are "
            f"{sorted(batch)}."
        )
    return {
        name: batch[source]
        if isinstance(source, str)
        else np.stack([batch[column] for column in source], axis=1)
        for name, source in columns.items()
    }


def _slices(arrays: Mapping[str, Any]) -> Iterator[Batch]:
    lengths = {str(name): array.shape[0] if array.shape else 0 for name, array in arrays.items()}
    if not arrays or len(set(lengths.values())) > 1:
        raise ValueError(
            f"all arrays of rows must have the same number of rows (leading axis); got {lengths}."
        )
    (num_rows,) = set(lengths.values())
    row_bytes = sum(
        int(np.prod(array.shape[1:])) * np.dtype(array.dtype).itemsize for array in arrays.values()
    )
    size = max(1, BATCH_BYTES // max(1, row_bytes))
    for first in range(0, num_rows, size):
        yield {str(name): np.asarray(array[first : first + size]) for name, array in arrays.items()}


def _zarr(path: Path) -> Mapping[str, Any]:
    try:
        import zarr
    except ImportError as error:
        raise ImportError('reading a Zarr store needs zarr: pip install "vcmc[zarr]"') from error
    store = zarr.open(str(path), mode="r")
    return {path.stem: store} if hasattr(store, "shape") else dict(store.arrays())


def _parquet(files: Sequence[Path]) -> Iterator[Batch]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            'reading Parquet files needs pyarrow: pip install "vcmc[parquet]"'
        ) from error
    num_read = 0
    for path in files:
        with pq.ParquetFile(path, pre_buffer=False) as file:  # a buffer would hold the whole file
            for batch in file.iter_batches(_rows_per_batch(file.metadata)):
                if batch.num_rows:
                    yield {
                        name: _column(name, batch.column(name), num_read)
                        for name in batch.schema.names
                    }
                num_read += batch.num_rows


def _rows_per_batch(metadata: Any) -> int:
    num_bytes = metadata.num_rows and sum(
        metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
    )
    return max(1, BATCH_BYTES * metadata.num_rows // max(1, num_bytes))


def _column(name: str, column: Any, num_read: int) -> np.ndarray:
    """Return a column as an array; `num_read` is the number of rows before it."""
    import pyarrow as pa

    if column.null_count:
        first = num_read + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"rows[{name!r}] must not have missing values; got {column.null_count} "
            f"(first: row {first}). Drop these rows, or fill them and pass a 0/1 column that tells "
            "your model which values are missing."
        )
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)
