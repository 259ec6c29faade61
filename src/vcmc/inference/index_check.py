"""Warn of rows with numbers of categories for which a model has no entry.

JAX takes the last entry of an array in place of one that does not exist, and says nothing: with a
plate of three regions, a fourth number would be wrong without a word. A few rows, those with the
smallest and the largest number of every column of integers, are run with JAX's own checks.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import checkify

from .._runtime import FAST_COMPILATION
from ..errors import warn_user


class IndexCheck:
    """Checks that a function of rows finds an entry for every number, in batch after batch.

    Args:
        function: a function of rows, which JAX runs.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]):
        self._is_indexing = partial(_is_indexing, function)
        checked = checkify.checkify(function, errors=checkify.index_checks)
        self._function = jax.jit(checked, compiler_options=FAST_COMPILATION)
        self._ranges: dict[str, tuple[int, int]] = {}
        self._has_warned = False

    def __call__(self, rows: Mapping[str, Any]) -> None:
        """Warn if a number has no entry. Numbers in a range that is known are not tried again."""
        integers = [
            name
            for name, array in rows.items()
            if np.ndim(array) == 1 and array.dtype.kind in "iu" and len(array)
        ]
        is_new = False
        numbers: list[int] = []
        for name in integers:
            places = np.argmin(rows[name]), np.argmax(rows[name])
            low, high = (int(rows[name][place]) for place in places)
            known = self._ranges.get(name, (low + 1, low))
            is_new = is_new or low < known[0] or known[1] < high
            self._ranges[name] = (min(low, known[0]), max(high, known[1]))
            numbers += map(int, places)
        if is_new and not self._has_warned:
            self._try(integers, {key: np.asarray(array)[numbers] for key, array in rows.items()})

    def _try(self, integers: list[str], rows: dict[str, np.ndarray]) -> None:
        if not self._is_indexing(rows) or not (message := self._message(rows)):
            return
        self._has_warned = True
        names = [
            name
            for name in integers
            if not self._message({**rows, name: np.zeros_like(rows[name])})
        ]
        found = ", ".join(
            f"rows[{name!r}] (from {rows[name].min()} to {rows[name].max()})"
            for name in names or integers
        )
        warn_user(
            f"the model has no entry for some numbers in {found}, and JAX takes that of another "
            f"number: {message}. Numbers of categories start at zero. Give the model a size for "
            "all of them, or drop the rows of those that it was not fitted to.",
            UserWarning,
        )

    def _message(self, rows: dict[str, np.ndarray]) -> str:
        try:
            error, _ = self._function(rows)
        except Exception:  # what JAX cannot check may still run
            return ""
        return (error.get() or "").split(". ")[0].strip()


def _is_indexing(function: Callable[[dict[str, Any]], Any], rows: dict[str, np.ndarray]) -> bool:
    """Return whether a function takes entries of an array; most need no other program."""
    try:
        return "gather" in str(jax.make_jaxpr(function)(rows))
    except Exception:  # of the user's function: it is reported where it is called
        return False
