"""Rows that do not fit into memory, read in batches: Parquet files, Zarr stores, mapped arrays.

In a folder, names that begin with `.` or `_` are left out, as Spark and PyArrow do: they are
checkpoints, logs and unfinished files.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from .columns import Batch, check_group_column
from .fingerprint import (
    Fingerprint,
    changed_arrays,
    changed_files,
    fingerprint_arrays,
    fingerprint_files,
)

BATCH_BYTES = 2**24  # of rows read at once
PARQUET = (".parquet", ".pq")  # suffixes of Parquet files
ZARR = ("zarr.json", ".zgroup", ".zarray")  # files by which a Zarr store is known
HIDDEN = (".", "_")  # first characters of names that are not rows

Encoders = Mapping[str, Callable[[np.ndarray], np.ndarray]]
"""For some columns, a function of their different values, whose results take their place."""


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


def with_arrays(rows: Any) -> Any:
    """Return rows that are read in batches, with arrays in place of lists beside mapped arrays."""
    if not isinstance(rows, Mapping):
        return rows
    return {
        name: array if hasattr(array, "shape") else np.asarray(array)
        for name, array in rows.items()
    }


def batches(rows: Any, encoders: Encoders = MappingProxyType({})) -> Iterator[Batch]:
    """Yield rows that need not be in memory, in batches of about 16 MB."""
    source = _source(rows)
    if isinstance(source, list):
        return _parquet(source, encoders)
    return _slices(source, "" if isinstance(rows, Mapping) else f"{rows}: ", encoders)


def distinct_batches(rows: Any, column: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield one column of rows, in batches: its different values, and the number of each row's.

    The number of a missing value of a Parquet file is -1.
    """
    source = _source(rows)
    if isinstance(source, list):
        _check_pyarrow()
        for path in source:
            for batch in _record_batches(path, column):
                encoded = batch.column(0).dictionary_encode()
                codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
                yield encoded.dictionary.to_numpy(zero_copy_only=False), codes
        return
    check_group_column(column, source)
    for batch in _slices({column: source[column]}):
        yield _distinct(batch[column])


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values of an array, and the number of each entry's."""
    if values.dtype.kind != "O":
        unique, codes = np.unique(values, return_inverse=True, axis=0)
        return unique, codes.ravel()
    numbers: dict[Any, int] = {}  # objects cannot always be sorted
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], int)
    unique = np.empty(len(numbers), object)
    unique[:] = list(numbers)
    return unique, codes


def _source(rows: Any) -> list[Path] | Mapping[str, Any]:
    """Return the Parquet files, or the arrays, that rows are read from."""
    if isinstance(rows, Mapping):
        return rows
    path = Path(rows)
    if files := _parquet_files(path):
        return files
    if _is_zarr(path):
        return _zarr(path)
    raise ValueError(
        f"rows must be a Parquet file ({' or '.join(PARQUET)}), a folder of them, or a Zarr store; "
        f"got {path}. Pass other files as arrays, e.g. numpy.load(path, mmap_mode='r'), which does "
        "not load them whole."
    )


def parquet_shape(path: Path) -> tuple[int, int] | None:
    """Return the numbers of rows and of columns of Parquet files; None if there are none."""
    if not (files := _parquet_files(path)):
        return None
    import pyarrow.parquet as pq

    shapes = [(about.num_rows, about.num_columns) for about in map(pq.read_metadata, files)]
    return sum(num_rows for num_rows, _ in shapes), shapes[0][1]


def open_arrays(path: Path) -> Mapping[str, Any]:
    """Return the arrays of a Zarr store, which are read when they are indexed."""
    return _zarr(path)


def fingerprint_rows(rows: Any) -> dict[str, Fingerprint]:
    """Return fingerprints of the files that rows are read from, or of arrays."""
    if isinstance(rows, Mapping):
        return fingerprint_arrays(rows)
    return fingerprint_files(Path(rows), _source_files(Path(rows)))


def changed_rows(before: Mapping[str, Fingerprint], rows: Any) -> list[str]:
    """Return names of files or arrays that have changed since their fingerprints were taken."""
    if isinstance(rows, Mapping):
        return changed_arrays(before, rows)
    return changed_files(before, Path(rows), _source_files(Path(rows)))


def check_outside(folder: Path, rows: Any) -> None:
    """Refuse a folder inside of the Zarr store that rows are read from."""
    if isinstance(rows, Mapping) or not _is_zarr(Path(rows)):
        return
    if folder.resolve().is_relative_to(Path(rows).resolve()):
        raise ValueError(
            f"folder must lie outside of the rows; got {folder}, which is in the Zarr store {rows}."
        )


def _source_files(path: Path) -> list[Path]:
    """Return the files that rows are read from: of a Zarr store, all."""
    if files := _parquet_files(path):
        return files
    return [file for file in sorted(path.rglob("*")) if file.is_file()] if _is_zarr(path) else []


def _is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in ZARR)


def _parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file itself, or those in a folder and below, links included, in order."""
    if not path.exists():
        raise FileNotFoundError(
            "rows must be a Parquet file, a folder of them, or a Zarr store; "
            f"there is no {path} (the current folder is {Path.cwd()})."
        )
    if not path.is_dir():
        return [path] if path.suffix in PARQUET else []
    found: list[Path] = []
    visited: set[str] = set()
    for folder, folders, names in os.walk(path, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:  # a link to a folder above
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        found += [
            Path(folder, name)
            for name in names
            if name.endswith(PARQUET) and not name.startswith(HIDDEN)
        ]
    return sorted(found)


def _slices(
    arrays: Mapping[str, Any], place: str = "", encoders: Encoders = MappingProxyType({})
) -> Iterator[Batch]:
    """Yield slices of arrays; `place` says in messages where they are."""
    lengths = {str(name): array.shape[0] if array.shape else 0 for name, array in arrays.items()}
    if not arrays or len(set(lengths.values())) > 1:
        raise ValueError(
            f"{place}all arrays of rows must have the same number of rows (leading axis); "
            f"got {lengths}."
        )
    (num_rows,) = set(lengths.values())
    row_bytes = sum(
        int(np.prod(array.shape[1:])) * np.dtype(array.dtype).itemsize for array in arrays.values()
    )
    size = max(1, BATCH_BYTES // max(1, row_bytes))
    for first in range(0, num_rows, size):
        count = min(size, num_rows - first)
        batch = {
            str(name): _slice(f"{place}rows[{name!r}]", array, first, count)
            for name, array in arrays.items()
        }
        for name, encode in encoders.items():
            values, codes = _distinct(batch[name])
            batch[name] = encode(values)[codes]
        yield batch


def _slice(label: str, array: Any, first: int, count: int) -> np.ndarray:
    try:
        values = np.asarray(array[first : first + count])
    except Exception as error:  # stores, codecs and file systems raise anything
        raise ValueError(
            f"{label} cannot be read from row {first} on ({describe(error)}). "
            "The file may be damaged: write it again."
        ) from error
    if len(values) != count:
        raise ValueError(
            f"{label} must keep its number of rows while it is read; got {len(values)} in place of "
            f"{count} from row {first} on. Wait until the file is complete."
        )
    return values


def _zarr(path: Path) -> Mapping[str, Any]:
    try:
        import zarr
    except ImportError as error:
        raise ImportError('reading a Zarr store needs zarr: pip install "vcmc[zarr]"') from error
    try:
        store = zarr.open(str(path), mode="r")
        return {path.stem: store} if hasattr(store, "shape") else dict(store.arrays())
    except Exception as error:  # metadata may be anything
        raise ValueError(
            f"{path} cannot be read as a Zarr store ({describe(error)}). "
            "It may be damaged or incomplete: write it again."
        ) from error


def _check_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'reading Parquet files needs pyarrow: pip install "vcmc[parquet]"'
        ) from error


def _parquet(files: Sequence[Path], encoders: Encoders) -> Iterator[Batch]:
    _check_pyarrow()
    num_read = 0
    for path in files:
        for batch in _record_batches(path):
            if batch.num_rows:
                yield {
                    name: _column(name, batch.column(name), num_read, encoders.get(name))
                    for name in batch.schema.names
                }
            num_read += batch.num_rows


def _record_batches(path: Path, column: str | None = None) -> Iterator[Any]:
    """Yield the rows of a Parquet file, or one of its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # a buffer would hold the whole file
        with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            names = file.schema_arrow.names
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(
                    f"{path} must have columns of different names; got {repeated} more than once."
                )
            if column is not None:
                check_group_column(column, names)
            columns = None if column is None else [column]
            yield from file.iter_batches(_rows_per_batch(file.metadata), columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as a Parquet file ({describe(error)}). It may be damaged or "
            "incomplete: write it again, or remove it."
        ) from error


def _rows_per_batch(metadata: Any) -> int:
    num_bytes = metadata.num_rows and sum(
        metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
    )
    return max(1, BATCH_BYTES * metadata.num_rows // max(1, num_bytes))


def _column(
    name: str,
    column: Any,
    num_read: int,
    encode: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Return a column as an array; `num_read` is the number of rows before it."""
    import pyarrow as pa

    if column.null_count:
        first = num_read + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"rows[{name!r}] must not have missing values; got {column.null_count} "
            f"(first: row {first}). Drop these rows, or fill them and pass a 0/1 column that tells "
            "your model which values are missing."
        )
    if encode is not None:  # without a Python object for each text
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_numpy(zero_copy_only=False)
        return encode(values)[encoded.indices.to_numpy(zero_copy_only=False)]
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a NumPy archive."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path} (in {Path.cwd()}).")
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array, as numpy.save writes it")
        with archive:
            # by the members' own names: of "a" and "a.npy", NumPy returns the first for both
            return {name: archive[f"{name}.npy"] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read as a NumPy archive ({describe(error)}). It may be damaged or "
            "incomplete: write it again with numpy.savez, without objects."
        ) from error


def describe(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
