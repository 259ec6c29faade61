"""Rows that do not fit into memory: read batch by batch, dealt into a folder with a few files for each shard.

Of every K rows that follow each other, each shard gets one, at random. So shards are alike however the rows are sorted, their sizes differ by
at most one, and one pass over the rows is enough.
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
BUFFER_BYTES = (
    2**26
)  # of dealt rows that are held before they are written: opening files takes time
MANIFEST = "rows.json"  # written last: a folder without it was not finished
PARQUET = (".parquet", ".pq")

Batch = dict[str, np.ndarray]
Columns = Mapping[str, str | Sequence[str]]


class FilePartition(AbstractPartition):
    """Rows that were dealt into the files of a folder, from where any process can load a shard. Made by `split`."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        try:
            known = json.loads((self.folder / MANIFEST).read_text())
            self.sizes: list[int] = known["sizes"]
            self.columns = {
                name: (dtype, tuple(shape)) for name, (dtype, shape) in known["columns"].items()
            }
            self.source: dict[str, Any] = known["source"]
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"{self.folder} must be a folder of dealt rows with a readable {MANIFEST}; got {type(error).__name__}: {error}. "
                "Delete the folder and deal the rows again, with vcmc.split(rows, num_shards, folder=...)."
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
            f"Filed({sum(self.sizes)} rows of {list(self.columns)} in {len(self.sizes)} shards of "
            f"{min(self.sizes)} to {max(self.sizes)} rows)"
        )


def _file(folder: Path, shard: int, name: str) -> Path:
    return folder / f"{shard:05}.{name}.bin"


def _read(file: BinaryIO, array: np.ndarray) -> None:
    got = file.readinto(array.reshape(-1).view(np.uint8))  # type: ignore[attr-defined]
    if got != array.nbytes or file.read(1):
        raise ValueError(
            f"{file.name} must hold {array.nbytes} bytes of rows; got {os.stat(file.name).st_size}. Delete its folder and deal the rows "
            "again."
        )


def is_large(rows: Any) -> bool:
    """Whether rows are such as are read batch by batch: a path, or arrays that are not in memory."""
    if isinstance(rows, str | os.PathLike):
        return True
    return isinstance(rows, Mapping) and any(_is_outside(array) for array in rows.values())


def _is_outside(array: Any) -> bool:
    """Whether an array is memory-mapped, or of a kind that is read by slices, as Zarr's and HDF5's are."""
    if isinstance(array, np.ndarray):
        return isinstance(array, np.memmap) or isinstance(array.base, np.memmap)
    return hasattr(array, "shape") and hasattr(array, "chunks")


def deal(
    rows: Any,
    num_shards: int,
    folder: Path,
    seed: int,
    columns: Columns | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> FilePartition:
    """Deal rows that are read batch by batch into the files of a folder; `advance` hears how many were."""
    check_num_shards(num_shards)
    source = {
        "num_shards": int(num_shards),
        "seed": int(seed),
        "columns": columns,
        "rows": described(rows),
    }
    source = json.loads(json.dumps(source))  # as it will be read
    if (folder / MANIFEST).exists():
        known = FilePartition(folder)
        if known.source != source:
            differ = [name for name, value in source.items() if known.source.get(name) != value]
            raise ValueError(
                f"{folder} holds rows that were dealt otherwise: {', '.join(differ)} differ (now {[source[name] for name in differ]}, "
                f"then {[known.source.get(name) for name in differ]}). Delete it, or use another folder."
            )
        return known
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.bin"):  # of a dealing that was interrupted
        old.unlink()
    generator = np.random.default_rng(seed)
    order = np.empty(0, int)
    sizes = np.zeros(num_shards, int)
    kinds: dict[str, Any] = {}
    buffers: list[list[Batch]] = [[] for _ in range(num_shards)]
    buffered = done = 0
    for batch in batches(rows):
        arrays = as_rows(choose_columns(batch, columns), done)
        count = len(next(iter(arrays.values())))
        _check_kinds(kinds, arrays, done)
        if len(order) < count:
            every = np.tile(np.arange(num_shards), (-(-(count - len(order)) // num_shards), 1))
            order = np.concatenate([order, generator.permuted(every, axis=1).ravel()])
        shards, order = order[:count], order[count:]
        by_shard, counts = (
            np.argsort(shards, kind="stable"),
            np.bincount(shards, minlength=num_shards),
        )
        ends = np.cumsum(counts)[:-1]
        parts = {name: np.split(array[by_shard], ends) for name, array in arrays.items()}
        for shard in np.flatnonzero(counts):
            buffers[shard].append({name: part[shard] for name, part in parts.items()})
        sizes += counts
        done += count
        advance(count)
        buffered += sum(array.nbytes for array in arrays.values())
        if buffered > BUFFER_BYTES:
            _flush(buffers, folder)
            buffered = 0
    _flush(buffers, folder)
    if not 1 <= num_shards <= done:
        raise ValueError(
            f"num_shards must lie between 1 and the number of rows ({done}); got {num_shards}. Try fewer shards."
        )
    manifest = {"sizes": sizes.tolist(), "columns": kinds, "source": source}
    (folder / (MANIFEST + ".new")).write_text(json.dumps(manifest))
    (folder / (MANIFEST + ".new")).replace(folder / MANIFEST)
    return FilePartition(folder)


def described(rows: Any) -> Any:
    """What tells whether rows on disk have changed: names, sizes and dates of files, or shapes of arrays."""
    if isinstance(rows, str | os.PathLike):
        files = [path for path in sorted(_files_below(Path(rows))) if path.is_file()]
        return {
            str(path.absolute()): [path.stat().st_size, path.stat().st_mtime_ns] for path in files
        }
    return {str(name): [str(array.dtype), list(array.shape)] for name, array in rows.items()}


def _files_below(path: Path) -> Iterable[Path]:
    if not path.exists():
        raise FileNotFoundError(
            f"rows must be a Parquet file, a folder of them, or a Zarr store; there is no {path} (looked in {Path.cwd()})."
        )
    return path.rglob("*") if path.is_dir() else [path]


def _check_kinds(kinds: dict[str, Any], arrays: Batch, done: int) -> None:
    found = {name: [array.dtype.str, list(array.shape[1:])] for name, array in arrays.items()}
    if not kinds:
        kinds.update(found)
    elif kinds != found:
        raise ValueError(
            f"all rows must be of one kind, {kinds}; got {found} from row {done} on. Give all files the same columns and types."
        )


def _flush(buffers: list[list[Batch]], folder: Path) -> None:
    for shard, parts in enumerate(buffers):
        for name in parts[0] if parts else ():
            with _file(folder, shard, name).open("ab") as file:
                np.concatenate([part[name] for part in parts]).tofile(file)
        parts.clear()


def batches(rows: Any) -> Iterator[Batch]:
    """Rows in any form that need not be in memory, some at a time."""
    if isinstance(rows, Mapping):
        return _slices(rows)
    path = Path(rows)
    files = sorted(each for each in _files_below(path) if each.suffix in PARQUET)
    if files:
        return _parquet(files)
    if any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return _slices(_zarr(path))
    raise ValueError(
        f"rows must be a Parquet file ({' or '.join(PARQUET)}), a folder of them, or a Zarr store; got {path}. "
        "Pass other files as arrays: numpy.load(path, mmap_mode='r') does not load them whole."
    )


def choose_columns(batch: Batch, columns: Columns | None) -> Batch:
    """Arrays that are made of the columns that are asked for."""
    if columns is None:
        return batch
    wanted = {
        name for each in columns.values() for name in ([each] if isinstance(each, str) else each)
    }
    if missing := sorted(wanted - set(batch)):
        raise ValueError(
            f"columns asks for {missing}, which are not there; the columns are {sorted(batch)}."
        )
    return {
        name: batch[each]
        if isinstance(each, str)
        else np.stack([batch[one] for one in each], axis=1)
        for name, each in columns.items()
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
    done = 0
    for path in files:
        with pq.ParquetFile(path, pre_buffer=False) as file:  # a buffer would hold the whole file
            size = file.metadata.num_rows and sum(
                file.metadata.row_group(group).total_byte_size
                for group in range(file.metadata.num_row_groups)
            )
            rows_at_once = max(1, BATCH_BYTES * file.metadata.num_rows // max(1, size))
            for batch in file.iter_batches(rows_at_once):
                if batch.num_rows:
                    yield {
                        name: _column(name, batch.column(name), done) for name in batch.schema.names
                    }
                done += batch.num_rows


def _column(name: str, column: Any, done: int) -> np.ndarray:
    import pyarrow as pa

    if column.null_count:
        first = done + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"rows[{name!r}] must not have missing values; got {column.null_count} (first: row {first}). Drop these rows, "
            "or fill them and pass a 0/1 column that tells your model which values are missing."
        )
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)
