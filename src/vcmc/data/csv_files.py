"""CSV files, read in blocks by PyArrow.

The types of columns are inferred from the first block, of some megabytes. Empty cells, `NA` and
`NaN` are missing values.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ..errors import describe

CSV = (".csv",)  # suffixes of CSV files
COUNTED_BYTES = 2**24  # read at once to count lines


def csv_record_batches(
    path: Path, block_bytes: int, wanted: Collection[str] | None = None
) -> Iterator[Any]:
    """Yield the rows of a file, of all columns or of those wanted."""
    import pyarrow as pa

    names = csv_schema(path, block_bytes).names
    columns = None if wanted is None else [name for name in names if name in wanted]
    try:
        with _open(path, block_bytes, columns) as reader:
            yield from reader
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as a CSV file ({describe(error)}). Types are those of its "
            "first rows: write all numbers of a column in one way, or convert the file to Parquet."
        ) from error


def csv_schema(path: Path, block_bytes: int) -> Any:
    """Return the names and types of a file's columns, as PyArrow infers them."""
    import pyarrow as pa

    try:
        with _open(path, block_bytes, None) as reader:
            schema = reader.schema
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as a CSV file ({describe(error)}). It must have a line of "
            "names, and the same number of cells, with commas in between, in every line."
        ) from error
    names = schema.names
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{path} must have columns of different names; got {repeated} more than once."
        )
    return schema


def count_csv_rows(path: Path) -> int:
    """Return the number of lines but the first; of quoted line breaks, too many."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(COUNTED_BYTES):
            count += block.count(b"\n")
            last = block[-1:]
    return max(0, count - 1 + (last != b"\n"))


def _open(path: Path, block_bytes: int, columns: list[str] | None) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        path,
        csv.ReadOptions(block_size=block_bytes),
        convert_options=csv.ConvertOptions(strings_can_be_null=True, include_columns=columns),
    )
