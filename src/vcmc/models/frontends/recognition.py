"""Recognise a hierarchical model that is given without its groups.

A latent value belongs to groups if every row depends on one element of it along some axis: the one
whose number the row has in a column. That is seen from derivatives of the likelihood of some rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ...data.rows import Rows, native
from ...space import Params, Product
from .checks import example_params

MIN_GROUPS = 20  # values of a column that look like groups, and not like a factor of a few levels
NUM_ROWS = 12  # whose derivatives are compared


class RecognisedGroups(NamedTuple):
    """Groups of a model.

    Attributes:
        names: latent values with an element for each group.
        column: the column with the number of every row's group.
        size: the number of groups.
    """

    names: list[str]
    column: str
    size: int

    @property
    def sentence(self) -> str:
        """That the model is hierarchical; how to write it follows."""
        more = f" (and {len(self.names) - 1} more)" if len(self.names) > 1 else ""
        return (
            f"the model is hierarchical: {self.names[0]!r}{more} has a value for each of "
            f"{self.size} groups of {self.column!r}, which shards cannot share well; write "
        )


def recognised_groups(
    log_likelihood: Callable[[Params, Rows], Any], space: Product, arrays: Mapping[str, np.ndarray]
) -> RecognisedGroups | None:
    """Return the largest number of groups that latent values have; None without any.

    Args:
        log_likelihood: one value per row, given params and rows.
        space: the space of the latent values.
        arrays: the rows.
    """
    axes = {
        name: [axis for axis, size in enumerate(part.shape) if size >= MIN_GROUPS]
        for name, part in space.items()
    }
    large = {name: sizes for name, sizes in axes.items() if sizes}
    columns = [name for name, array in arrays.items() if array.ndim == 1 and _counts(array)]
    if not large or not columns:
        return None
    params = example_params(space, count=1, spread=0.5)[0]
    found: dict[tuple[int, str], list[str]] = {}
    for column in columns:
        rows = _different_rows(arrays, column)
        numbers = rows[column]
        if len(numbers) < 2:
            continue
        slopes = jax.jit(
            jax.jacrev(lambda values, rows: log_likelihood({**params, **values}, rows))
        )({name: params[name] for name in large}, rows)
        for name, candidates in large.items():
            for axis in candidates:
                size = space[name].shape[axis]
                if _selects(np.asarray(slopes[name]), axis, numbers):
                    found.setdefault((size, column), []).append(name)
    if not found:
        return None
    size, column = max(found, key=lambda key: key[0])
    return RecognisedGroups(found[size, column], column, size)


def _counts(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and len(array) > 0 and array.min() >= 0


def _different_rows(arrays: Mapping[str, np.ndarray], column: str) -> dict[str, np.ndarray]:
    """Return some rows with different numbers in a column."""
    first = np.unique(native(arrays[column]), return_index=True)[1]
    chosen = first[np.linspace(0, len(first) - 1, min(NUM_ROWS, len(first))).astype(int)]
    return {name: native(array[chosen]) for name, array in arrays.items()}


def _selects(slopes: np.ndarray, axis: int, numbers: np.ndarray) -> bool:
    """Return whether each row depends on that element alone whose number it has."""
    by_element = np.moveaxis(slopes, axis + 1, 1).reshape(len(slopes), slopes.shape[axis + 1], -1)
    depends = np.abs(by_element).sum(axis=2) > 0
    if numbers.max() >= depends.shape[1]:
        return False
    return bool((depends == (numbers[:, None] == np.arange(depends.shape[1]))).all())
