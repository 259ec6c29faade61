"""Arrays that are made of the columns of a file, as `split(..., columns=...)` asks for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
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


def expand_columns(columns: Columns | None, names: Sequence[str]) -> Columns | None:
    """Return columns with ranges (`age:income`) and patterns (`x9*`) replaced by names.

    Args:
        columns: columns by name of the array; a column with such a name is meant by it first.
        names: the names of all columns, in their order.

    >>> expand_columns({"x": ["a:c", "z*"], "y": "y"}, ["y", "a", "b", "c", "z1", "z2"])
    {'x': ['a', 'b', 'c', 'z1', 'z2'], 'y': 'y'}
    """
    if columns is None:
        return None
    expanded: dict[str, str | list[str]] = {}
    for name, source in columns.items():
        parts = [source] if isinstance(source, str) else list(source)
        if all(part in names or not set(part) & set(":*?") for part in parts):
            expanded[name] = source if isinstance(source, str) else parts
            continue
        # a column that several parts name is used once
        listed = dict.fromkeys(column for part in parts for column in _expanded(part, names))
        expanded[name] = list(listed)
    return expanded


def _expanded(part: str, names: Sequence[str]) -> list[str]:
    """Return the columns that a name, a range or a pattern stands for."""
    if part in names:
        return [part]
    first, colon, last = part.partition(":")
    if colon and first in names and last in names:
        start, stop = names.index(first), names.index(last)
        if start > stop:
            raise ValueError(
                f"the range {part!r} of columns must be in the order of the data, in which "
                f"{last!r} comes before {first!r}. Try {last}:{first}."
            )
        return list(names[start : stop + 1])
    if colon:
        missing = first if first not in names else last
        raise ValueError(
            f"the range {part!r} must have columns of the data at its ends; got {missing!r}, and "
            f"the columns are {list(names)}."
        )
    if set(part) & set("*?"):
        matching = [name for name in names if fnmatchcase(name, part)]
        if not matching:
            raise ValueError(
                f"the pattern {part!r} must match columns of the data; it matches none of "
                f"{list(names)}."
            )
        return matching
    return [part]


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
