"""Warn of rows with numbers of categories for which a model has no entry.

JAX takes the last entry of an array in place of one that does not exist, and says nothing: with a
plate of three regions, a fourth number would be wrong without a word. A few rows, those with the
smallest and the largest number of every column of whole numbers, are run with JAX's own checks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from .._runtime import FAST_COMPILATION
from ..data.grouped import TiledPartition
from ..data.partition import Partition
from ..data.shard import AbstractPartition, Shard
from ..errors import warn_user
from ..model import Model
from ..space import Point

FIRST_ROWS = 64  # that tell whether a column holds whole numbers


class IndexCheck:
    """Checks that a function of rows finds an entry for every number, in batch after batch.

    Args:
        function: a function of rows, which JAX runs.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]):
        self._is_indexing = partial(_is_indexing, function)
        checked = checkify.checkify(function, errors=checkify.index_checks)
        self._function = jax.jit(checked, compiler_options=FAST_COMPILATION)
        self._names: list[str] | None = None  # of columns that may hold numbers of categories
        self._ranges: dict[str, tuple[Any, Any]] = {}
        self._has_warned = False

    def __call__(self, rows: Mapping[str, Any]) -> None:
        """Warn if a number has no entry. Numbers in a range that is known are not tried again."""
        if self._names is None:
            self._names = [name for name, array in rows.items() if _may_be_codes(np.asarray(array))]
        is_new = False
        numbers: list[int] = []
        for name in self._names:
            array = np.asarray(rows[name])
            flat, row_size = array.reshape(-1), array[0].size
            places = int(flat.argmin()), int(flat.argmax())
            low, high = (flat[place] for place in places)
            known = self._ranges.get(name, (low + 1, low))
            is_new = is_new or low < known[0] or known[1] < high
            self._ranges[name] = (min(low, known[0]), max(high, known[1]))
            numbers += [place // row_size for place in places]
        if is_new and not self._has_warned:
            self._try(self._names, {key: np.asarray(array)[numbers] for key, array in rows.items()})

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


def _may_be_codes(array: np.ndarray) -> bool:
    """Return whether a column may hold numbers of categories, by its first rows."""
    if not array.size or array.dtype.kind not in "iuf":
        return False
    few = array[:FIRST_ROWS]
    return bool(np.all(few == np.round(few)))


def check_indices(
    model: Model, point: Point, partition: AbstractPartition, shards: Iterable[Shard]
) -> None:
    """Warn if the log likelihood of a model has no entry for some numbers of categories.

    All rows are looked at if they are in memory, else those of some shards.
    """
    params = model.space.constrain(point)

    def log_likelihood(rows: dict[str, Any]) -> Any:
        if model.local is None:
            return model.log_likelihood(params, rows)
        count = len(next(iter(rows.values())))
        of_rows = jax.vmap(model.local.space.constrain)(jnp.zeros((count, model.local.space.dim)))
        return model.local.log_likelihood(
            params, of_rows, {**rows, model.local.groups: jnp.arange(count)}
        )

    check = IndexCheck(log_likelihood)
    for rows in checked_parts(model, partition, shards):
        check(rows)


def checked_parts(
    model: Model, partition: AbstractPartition, shards: Iterable[Shard]
) -> Iterator[dict[str, Any]]:
    """Yield rows without labels of groups: all if they are in memory, else those of some shards."""
    groups = model.local.groups if model.local else None
    has_table = model.local is not None and len(model.local.table or {}) > 1
    whole = partition.partition if isinstance(partition, TiledPartition) else partition
    parts: Iterable[Mapping[str, Any]] = (shard.rows for shard in shards)
    if isinstance(whole, Partition) and not has_table:
        parts = [whole.rows]
    for rows in parts:
        yield {name: np.asarray(array) for name, array in rows.items() if name != groups}


def _is_indexing(function: Callable[[dict[str, Any]], Any], rows: dict[str, np.ndarray]) -> bool:
    """Return whether a function takes entries of an array; most need no other program."""
    try:
        return "gather" in str(jax.make_jaxpr(function)(rows))
    except Exception:  # of the user's function: it is reported where it is called
        return False
