"""The size of rows in any accepted form, without reading them all."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .batches import open_arrays, parquet_shape
from .categories import Levels
from .columns import Columns
from .rows import named_columns

NUMBER_BYTES = 8  # shards hold 64-bit numbers


class RowsSize(NamedTuple):
    """Number of rows, and bytes of a row as shards hold it, with its weight."""

    num_rows: int
    row_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return self.num_rows * self.row_bytes


@dataclass(frozen=True)
class FileRows:
    """Rows of a file, and the arrays that are made of its columns, as `split` takes them."""

    path: Any
    columns: Columns | None = None
    levels: Levels | None = None


def rows_size(rows: Any) -> RowsSize:
    """Return the size of rows in memory, in files or in stores."""
    columns = None
    if isinstance(rows, FileRows):
        rows, columns = rows.path, rows.columns
    if isinstance(rows, str | os.PathLike):
        shape = parquet_shape(Path(rows))
        if shape is not None:
            num_rows, num_columns = shape
            if columns is not None:
                num_columns = sum(
                    1 if isinstance(names, str) else len(names) for names in columns.values()
                )
            return RowsSize(num_rows, NUMBER_BYTES * (1 + num_columns))
        arrays: Mapping[str, Any] = open_arrays(Path(rows))
    else:
        arrays = named_columns(rows)
    shapes = [np.shape(array) for array in arrays.values()]
    if not shapes or not all(shapes):
        raise ValueError("rows must hold arrays with a leading axis.")
    numbers = sum(int(np.prod(shape[1:])) for shape in shapes)
    return RowsSize(shapes[0][0], NUMBER_BYTES * (1 + numbers))
