"""Convert rows (mappings of arrays, pandas and polars data frames) to checked arrays."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Array

NUMBER_KINDS = "biuf"  # NumPy's codes of booleans, integers and floating-point numbers

Rows: TypeAlias = Mapping[str, Array | np.ndarray]
"""Named arrays that share their leading axis: one entry per row."""


def as_rows(rows: Any, first: int = 0) -> dict[str, np.ndarray]:
    """Return rows in any accepted form as checked NumPy arrays with one leading axis.

    `first` is the number of the first row, for messages.
    """
    columns = _columns(rows)
    if not columns:
        raise ValueError("rows must hold at least one named array; got none.")
    arrays = {str(name): _as_array(str(name), column, first) for name, column in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "all arrays of rows must have the same number of rows (leading axis); got "
            + ", ".join(f"{name}: {length}" for name, length in lengths.items())
            + ". Put arguments that are not per row into the model, e.g. by a closure."
        )
    return arrays


def _columns(rows: Any) -> Mapping[str, Any]:
    if isinstance(rows, Mapping):
        return rows
    if hasattr(rows, "columns") and hasattr(rows, "__getitem__"):  # pandas, polars
        names = [str(name) for name in rows.columns]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(
                f"columns of rows must have different names; got {sorted(repeated)} more than once."
            )
        return {name: rows[name].to_numpy() for name in rows.columns}
    raise TypeError(
        'rows must be a mapping of named arrays, e.g. {"x": x, "y": y}, a pandas or polars data '
        "frame, the path of a Parquet file or a Zarr store, or a Partition from vcmc.split; "
        f"got {type(rows).__name__}."
    )


def _as_array(name: str, column: Any, first: int) -> np.ndarray:
    if np.ma.is_masked(column):
        raise ValueError(
            f"rows[{name!r}] must not be masked; got {np.ma.count_masked(column)} masked values. "
            "Drop these rows, or fill them and pass a 0/1 column that tells your model which "
            "values are missing."
        )
    try:
        array = np.asarray(column)
    except ValueError as error:  # NumPy refuses nested lists of unequal lengths
        raise ValueError(
            f"rows[{name!r}] is ragged: every row must have the same shape ({error})."
        ) from None
    if array.ndim == 0:
        raise ValueError(
            f"rows[{name!r}] must have a leading axis with one entry per row; got a single value, "
            f"{array!r}."
        )
    if len(array) == 0:
        raise ValueError(f"rows must hold at least one row; got rows[{name!r}] of length 0.")
    if array.dtype.kind not in NUMBER_KINDS:
        raise ValueError(
            f"rows[{name!r}] must hold numbers or booleans; got dtype {array.dtype}. "
            "Encode categories as integers, and give all rows the same shape."
        )
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if bad.any():
            raise ValueError(
                f"rows[{name!r}] must be finite; got NaN or infinity in {bad.sum()} of "
                f"{len(array)} rows (first: row {first + int(np.argmax(bad))}). Drop these rows, "
                "or fill them and pass a 0/1 column that tells your model which values are missing."
            )
    return array.astype(np.int64) if array.dtype.kind == "u" else array  # unsigned 2 * 0 - 1 is 255
