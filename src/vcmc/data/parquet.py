"""Parquet and CSV files, read in batches of about as many bytes as are asked for."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import describe
from .columns import Batch, Encoders, check_group_column
from .csv_files import CSV, count_csv_rows, csv_record_batches, csv_schema


def parquet_batches(
    files: Sequence[Path],
    batch_bytes: int,
    encoders: Encoders,
    wanted: Collection[str] | None = None,
) -> Iterator[Batch]:
    """Yield the rows of files, one after the other; of all columns, or of those wanted."""
    _check_pyarrow()
    num_read = 0
    for path in files:
        for batch in _record_batches(path, batch_bytes, wanted=wanted):
            if batch.num_rows:
                yield {
                    name: _column(name, batch.column(name), num_read, encoders.get(name))
                    for name in batch.schema.names
                }
            num_read += batch.num_rows


def distinct_parquet_batches(
    files: Sequence[Path], batch_bytes: int, column: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the different values of a column, and the number of each row's; -1 if it is missing."""
    _check_pyarrow()
    for path in files:
        for batch in _record_batches(path, batch_bytes, column):
            yield _distinct(batch.column(0))


def parquet_columns(path: Path, batch_bytes: int) -> dict[str, bool]:
    """Return the names of a file's columns, and whether they hold text."""
    _check_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    def is_text(kind: Any) -> bool:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return any(test(kind) for test in tests)

    try:
        is_csv = path.suffix in CSV
        schema = csv_schema(path, batch_bytes) if is_csv else pq.read_schema(path)
        return {field.name: is_text(field.type) for field in schema}
    except (pa.ArrowException, OSError) as error:
        raise ValueError(_unreadable(path, error)) from error


def num_rows_and_columns(path: Path, batch_bytes: int) -> tuple[int, int]:
    """Return the numbers of rows and of columns of a file."""
    _check_pyarrow()
    import pyarrow.parquet as pq

    if path.suffix in CSV:
        return count_csv_rows(path), len(csv_schema(path, batch_bytes))
    about = pq.read_metadata(path)
    return about.num_rows, about.num_columns


def _distinct(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of a dictionary, some of which may not be used, and numbers of them."""
    encoded = column.dictionary_encode()  # without a Python object for each text
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_numpy(zero_copy_only=False), codes


def _check_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'reading Parquet and CSV files needs pyarrow: pip install "vcmc[parquet]"'
        ) from error


def _record_batches(
    path: Path,
    batch_bytes: int,
    column: str | None = None,
    wanted: Collection[str] | None = None,
) -> Iterator[Any]:
    """Yield the rows of a file, or one of its columns, or those that are wanted."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix in CSV:
        if column is not None:
            check_group_column(column, csv_schema(path, batch_bytes).names)
            wanted = [column]
        yield from csv_record_batches(path, batch_bytes, wanted)
        return
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
            columns = None if wanted is None else [name for name in names if name in wanted]
            columns = columns if column is None else [column]
            yield from file.iter_batches(
                _rows_per_batch(file.metadata, batch_bytes), columns=columns
            )
    except (pa.ArrowException, OSError) as error:
        raise ValueError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    return (
        f"{path} cannot be read as a Parquet file ({describe(error)}). It may be damaged or "
        "incomplete: write it again, or remove it."
    )


def _rows_per_batch(metadata: Any, batch_bytes: int) -> int:
    num_bytes = metadata.num_rows and sum(
        metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)
    )
    return max(1, batch_bytes * metadata.num_rows // max(1, num_bytes))


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
    if encode is not None:
        values, codes = _distinct(column)
        used, places = np.unique(codes, return_inverse=True)
        return encode(values[used])[places]
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)
