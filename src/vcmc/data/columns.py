"""Arrays that are made of the columns of a file, as `split(..., columns=...)` asks for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Batch = dict[str, np.ndarray]
Columns = Mapping[str, str | Sequence[str]]
Encoders = Mapping[str, Callable[[np.ndarray], np.ndarray]]
"""For some columns, a function of their different values, whose results take their place."""


def check_columns(columns: Any) -> None:
    """Refuse a value that does not say which arrays to make of which columns."""
    if columns is None:
        return
    if not isinstance(columns, Mapping) or not columns:
        raise ValueError(
            "columns must map names of arrays to columns, e.g. "
            f'{{"y": "clicked", "x": ["age", "income"]}}; got {columns!r}.'
        )
    for name, source in columns.items():
        is_list = isinstance(source, Sequence) and all(isinstance(part, str) for part in source)
        if not is_list or not source:
            raise ValueError(
                f"columns[{name!r}] must be a column's name or a list of names; got {source!r}."
            )


def check_group_column(column: Any, names: Iterable[Any]) -> None:
    """Refuse a column of groups that the rows do not have."""
    if column not in names:
        raise ValueError(
            f"groups must name a column of the rows, one of {list(names)}; got {column!r}."
        )


def source_columns(columns: Columns) -> set[str]:
    """Return the columns that arrays are made of."""
    return {
        column
        for source in columns.values()
        for column in ([source] if isinstance(source, str) else source)
    }


def check_sources(columns: Columns | None, names: Iterable[str]) -> None:
    """Refuse arrays of columns that the rows do not have."""
    names = set(names)
    if columns is not None and (missing := sorted(source_columns(columns) - names)):
        raise ValueError(
            f"columns names {missing}, which are not in the rows; their columns are "
            f"{sorted(names)}."
        )


def choose_columns(batch: Batch, columns: Columns | None) -> Batch:
    """Return the arrays that are made of the requested columns."""
    if columns is None:
        return batch
    check_sources(columns, batch)
    return {
        name: batch[source] if isinstance(source, str) else _stack(name, source, batch)
        for name, source in columns.items()
    }


def _stack(name: str, source: Sequence[str], batch: Batch) -> np.ndarray:
    shapes = {column: batch[column].shape[1:] for column in source}
    if len(set(shapes.values())) > 1:
        raise ValueError(
            f"columns[{name!r}] must be columns of one shape; got "
            + ", ".join(f"{column}: {shape}" for column, shape in shapes.items())
            + "."
        )
    return np.stack([batch[column] for column in source], axis=1)
