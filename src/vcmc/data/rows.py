"""Convert rows (mappings of arrays, pandas and polars data frames) to checked arrays."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Array

NUMBER_KINDS = "biuf"  # NumPy's codes of booleans, integers and floating-point numbers

Rows: TypeAlias = Mapping[str, Array | np.ndarray]
"""Named arrays that share their leading axis: one entry per row."""


def as_rows(rows: Any, first: int = 0) -> dict[str, np.ndarray]:
    """Return rows in any accepted form as checked NumPy arrays with one leading axis.

    They keep their types, so that arrays are not copied whole; `native` converts some rows.
    `first` is the number of the first row, for messages.
    """
    columns = named_columns(rows)
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


def native(array: Array | np.ndarray) -> np.ndarray:
    """Return numbers as 64-bit floats or integers of this machine, and booleans as they are.

    In 8 bits 2 * 100 is -56, and without a sign 2 * 0 - 1 is 255.

    >>> native(np.array([100], np.int8)) * 2
    array([200])
    """
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    return np.asarray(array, kinds[array.dtype.kind])


def named_columns(rows: Any) -> Mapping[str, Any]:
    """Return the columns of rows in memory by name, those of frames as arrays."""
    if isinstance(rows, Mapping):
        return original_columns(rows)
    return {name: column.to_numpy() for name, column in original_columns(rows).items()}


def original_columns(rows: Any) -> Mapping[str, Any]:
    """Return the columns of rows in memory by name, as they are."""
    if isinstance(rows, Mapping):
        _check_names(rows)
        return rows
    if type(rows).__name__ == "LazyFrame":
        raise TypeError("rows must be data; got a LazyFrame, a plan to read them: rows.collect().")
    if hasattr(rows, "columns") and hasattr(rows, "__getitem__"):  # pandas, polars
        _check_names(rows.columns)
        return {name: rows[name] for name in rows.columns}
    raise TypeError(
        'rows must be a mapping of named arrays, e.g. {"x": x, "y": y}, a pandas or polars data '
        "frame, the path of a Parquet or CSV file or a Zarr store, or a Partition from vcmc.split; "
        f"got {type(rows).__name__}."
    )


def _check_names(columns: Iterable[Any]) -> None:
    names = [str(name) for name in columns]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"columns of rows must have different names; got {sorted(repeated)} more than once."
        )


def _as_array(name: str, column: Any, first: int) -> np.ndarray:
    if np.ma.is_masked(column):
        raise ValueError(
            f"rows[{name!r}] must not be masked; got {np.ma.count_masked(column)} masked values. "
            "Drop these rows, or fill them and pass a 0/1 column that tells your model which "
            "values are missing."
        )
    if hasattr(column, "toarray"):
        raise ValueError(
            f"rows[{name!r}] is a sparse matrix, and models take arrays. Try .toarray()."
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
            f"rows[{name!r}] must hold numbers, booleans or text; got dtype {array.dtype}. "
            "Encode other categories as integers, and give all rows the same shape."
        )
    if array.size == 0:
        raise ValueError(
            f"rows[{name!r}] must have at least one value per row; got shape {array.shape}. "
            "Leave the column out."
        )
    _check_values(name, array, first)
    return array


def _check_values(name: str, array: np.ndarray, first: int) -> None:
    """Refuse numbers that 64 bits do not hold, and missing values."""
    largest = np.iinfo(np.int64).max
    if array.dtype == np.uint64 and array.max() > largest:
        raise ValueError(
            f"rows[{name!r}] must be at most {largest}; got {array.max()}. Convert the column to "
            "floats, or number its categories."
        )
    if array.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):  # of numbers with more than 64 bits
        values = native(array) if array.itemsize > 8 else array
    bad = ~np.isfinite(values).reshape(len(array), -1).all(axis=1)
    if bad.any():
        raise ValueError(
            f"rows[{name!r}] must be finite; got NaN or infinity in {bad.sum()} of "
            f"{len(array)} rows (first: row {first + int(np.argmax(bad))}). Drop these rows, "
            "or fill them and pass a 0/1 column that tells your model which values are missing."
        )
