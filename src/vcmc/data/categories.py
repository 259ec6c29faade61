"""Categories: columns of text, which models get as numbers of levels from zero.

The levels of a column are the labels along the dim of the same name, so that results say
`region[south]`. A pandas categorical or a polars Enum has its own order of levels; that of other
text is alphabetical. Categories of numbers stay numbers.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from ..errors import warn_user
from .rows import NUMBER_KINDS, named_columns, original_columns

Levels = Mapping[str, np.ndarray]
"""The labels of the levels of text columns, by name."""

NO_LEVELS: dict[str, np.ndarray] = {}
MAX_NAMED = 5  # levels or columns in a message
ORDERED_TYPES = ("CategoricalDtype", "Enum")  # of pandas and polars, whose levels have an order


def is_text(column: Any) -> bool:
    """Return whether a column in memory holds text, and perhaps missing values, but no numbers."""
    kind = getattr(getattr(column, "dtype", None), "kind", "O")
    if kind in NUMBER_KINDS:
        return False
    try:
        values = np.asarray(column)
    except ValueError:  # ragged
        return False
    if values.ndim != 1 or values.dtype.kind != "O":
        return values.ndim == 1 and values.dtype.kind in "UT"
    from pandas.api.types import infer_dtype  # slow to import

    return infer_dtype(values, skipna=True) == "string"


def encode_text(
    rows: Any, known: Levels = NO_LEVELS, skip: Collection[str | None] = ()
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return columns with numbers of levels in place of text, and the levels.

    Args:
        rows: rows in memory.
        known: levels of some columns; those of others are found in the rows.
        skip: columns that are left as they are.
    """
    columns, originals = dict(named_columns(rows)), original_columns(rows)
    levels: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        if name not in skip and is_text(column):
            from pandas import factorize  # slow to import

            codes, labels = factorize(np.asarray(column, object))
            _check_present(str(name), codes)
            own = known[name] if name in known else _own_levels(originals[name], labels)
            levels[str(name)] = own
            columns[name] = level_numbers(str(name), labels, own)[codes]
    return columns, levels


def level_numbers(
    name: str, labels: Iterable[str], levels: Sequence[Any] | np.ndarray
) -> Int[np.ndarray, " label"]:
    """Return the numbers of labels among the levels of a column; refuse others.

    >>> level_numbers("region", ["south", "north"], ["north", "south"])
    array([1, 0])
    """
    numbers = {str(level): number for number, level in enumerate(levels)}
    labels = [str(label) for label in labels]
    if unseen := [label for label in labels if label not in numbers]:
        raise ValueError(
            f"rows[{name!r}] must hold levels that are known, {_named(numbers)}; got "
            f"{_named(unseen)}. Give the model all levels, e.g. coords={{{name!r}: [...]}}, or "
            "drop these rows."
        )
    return np.array([numbers[label] for label in labels], np.int64)


def frame_dim(name: str) -> str:
    """Return the dim along the columns of an array that is given as a data frame."""
    return f"{name}_column"


def text_coords(coords: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return those labels of dims that are text: levels of columns of the same names."""
    arrays = {dim: np.asarray(labels) for dim, labels in coords.items()}
    return {dim: array for dim, array in arrays.items() if array.dtype.kind == "U"}


def check_order(levels: Levels, coords: Mapping[str, Any]) -> None:
    """Refuse labels of a dim that are the levels of a column of another name, in another order."""
    for name, own in levels.items():
        for dim, labels in text_coords(coords).items():
            is_same_set = len(labels) == len(own) and set(labels) == set(own)
            if dim != name and is_same_set and not np.array_equal(labels, own):
                raise ValueError(
                    f"coords[{dim!r}] must have the levels of the column {name!r} in their order, "
                    f"{_named(own)}; got {_named(labels)}. Call the dim {name!r}, whose coords "
                    "say which number a level gets."
                )


def check_same_levels(first: Levels, second: Levels) -> None:
    """Refuse rows that were split with other levels than those of the model."""
    for name in set(first) & set(second):
        if not np.array_equal(first[name], second[name]):
            raise ValueError(
                f"the rows were split with the levels {_named(first[name])} of {name!r}, but the "
                f"model has {_named(second[name])}. Split them with those of the model: "
                "vcmc.split(..., levels=model.levels)."
            )


def read_columns(rows: Any, names: Collection[str] | None) -> dict[str, Any]:
    """Return those columns in memory that a model reads, and say which are ignored.

    Args:
        rows: rows in memory.
        names: the names that the model knows; None if it takes any.
    """
    columns = dict(original_columns(rows))
    if names is None:
        return columns
    ignored = [str(name) for name in columns if name not in names]
    if len(ignored) < len(columns):
        warn_of_ignored(ignored)
    return {name: column for name, column in columns.items() if name in names}


def warn_of_ignored(names: Collection[str]) -> None:
    """Say which columns are ignored, if any."""
    if names:
        warn_user(
            f"the model does not read the columns {_named(names)} of the rows, which are ignored.",
            UserWarning,
        )


def _own_levels(column: Any, labels: Iterable[str]) -> np.ndarray:
    """Return the levels of a column: its own, in their order, or else its labels in order."""
    dtype: Any = getattr(column, "dtype", None)
    if type(dtype).__name__ in ORDERED_TYPES:
        return np.array([str(level) for level in dtype.categories])
    return np.array(sorted(map(str, labels)))


def _check_present(name: str, codes: Int[np.ndarray, " row"]) -> None:
    missing = codes < 0
    if missing.any():
        raise ValueError(
            f"rows[{name!r}] must not have missing values; got {missing.sum()} (first: row "
            f"{int(np.argmax(missing))}). Drop these rows, or give them a level of their own."
        )


def _named(labels: Iterable[Any]) -> str:
    """Return the first labels as text, for a message."""
    labels = list(labels)
    more = f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else ""
    return ", ".join(repr(str(label)) for label in labels[:MAX_NAMED]) + more
