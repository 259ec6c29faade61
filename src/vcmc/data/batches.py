"""Rows that do not fit into memory, read in batches: Parquet and CSV files, Zarr, mapped arrays.

In a folder, names that begin with `.` or `_` are left out, as Spark and PyArrow do: they are
checkpoints, logs and unfinished files.
"""

import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import describe
from .columns import Batch, Encoders, check_group_column
from .csv_files import CSV
from .fingerprint import (
    Fingerprint,
    changed_arrays,
    changed_files,
    fingerprint_arrays,
    fingerprint_files,
)
from .parquet import (
    distinct_parquet_batches,
    num_rows_and_columns,
    parquet_batches,
    parquet_columns,
)

BATCH_BYTES = 2**24  # of rows read at once
PARQUET = (".parquet", ".pq")  # suffixes of Parquet files
ZARR = ("zarr.json", ".zgroup", ".zarray")  # files by which a Zarr store is known
HIDDEN = (".", "_")  # first characters of names that are not rows


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


def batches(
    rows: Any,
    encoders: Encoders = MappingProxyType({}),
    wanted: Collection[str] | None = None,
) -> Iterator[Batch]:
    """Yield rows that need not be in memory, in batches of about 16 MB.

    Args:
        rows: rows that are read in batches.
        encoders: functions of the different values of some columns.
        wanted: the columns to read, if the rows have them; by default all.
    """
    source = _source(rows)
    if isinstance(source, list):
        return parquet_batches(source, BATCH_BYTES, encoders, wanted)
    if wanted is not None and any(name in wanted for name in source):
        source = {name: array for name, array in source.items() if name in wanted}
    return _slices(source, "" if isinstance(rows, Mapping) else f"{rows}: ", encoders)


def distinct_batches(rows: Any, column: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield one column of rows, in batches: its different values, and the number of each row's.

    The number of a missing value of a Parquet file is -1.
    """
    source = _source(rows)
    if isinstance(source, list):
        yield from distinct_parquet_batches(source, BATCH_BYTES, column)
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
        f"rows must be a Parquet file ({' or '.join(PARQUET)}), a CSV file (.csv), a folder of "
        f"them, or a Zarr store; got {path}. Pass other files as arrays, e.g. "
        "numpy.load(path, mmap_mode='r'), which does not load them whole."
    )


def columns_of(rows: Any) -> dict[str, bool]:
    """Return the names of the columns of rows that are read in batches, and which are text."""
    source = _source(rows)
    if isinstance(source, list):
        return parquet_columns(source[0], BATCH_BYTES)
    return {str(name): np.dtype(array.dtype).kind in "UT" for name, array in source.items()}


def parquet_shape(path: Path) -> tuple[int, int] | None:
    """Return the numbers of rows and of columns of Parquet or CSV files; None if there are none."""
    if not (files := _parquet_files(path)):
        return None
    shapes = [num_rows_and_columns(file, BATCH_BYTES) for file in files]
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
    """Return a Parquet or CSV file itself, or those in a folder and below, in order.

    Links are followed. In a folder that has Parquet files, CSV files are left out.
    """
    if not path.exists():
        raise FileNotFoundError(
            "rows must be a Parquet or CSV file, a folder of them, or a Zarr store; "
            f"there is no {path} (the current folder is {Path.cwd()})."
        )
    if not path.is_dir():
        return [path] if path.suffix in (*PARQUET, *CSV) else []
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
            if name.endswith((*PARQUET, *CSV)) and not name.startswith(HIDDEN)
        ]
    parquet = [file for file in found if file.suffix in PARQUET]
    return sorted(parquet or ([] if _is_zarr(path) else found))


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
