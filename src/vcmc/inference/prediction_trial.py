"""A trial of a model on new rows: what it predicts, and which of their columns it uses.

Nothing is computed for models that JAX runs; the shapes of their values suffice.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from ..data.row_blocks import RowStream, num_entries
from ..data.rows import NUMBER_KINDS, as_rows, native
from ..errors import describe
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from .index_check import IndexCheck
from .prediction_blocks import simulate_at

TRIAL_ROWS = 3


class Trial(NamedTuple):
    """What a trial has shown.

    Attributes:
        name: what to predict.
        columns: the columns of rows that are used.
        shape: the shape of a row's value.
        row_bytes: bytes of the used columns of a row.
    """

    name: str
    columns: list[str]
    shape: tuple[int, ...]
    row_bytes: int


class _Recorder(dict[str, Any]):
    """Rows that note which of their columns are used."""

    def __init__(self, rows: Mapping[str, Any]):
        super().__init__(rows)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        return super().get(name, default)


def try_model(
    model: Model, stream: RowStream, name: str | None, extra: Mapping[str, np.ndarray]
) -> Trial:
    """Try a model on the first rows.

    Args:
        model: the model.
        stream: the new rows.
        name: what the user wants to predict.
        extra: columns that are not in the rows, with one entry for each of `TRIAL_ROWS` rows.
    """
    batch = first_rows(stream)
    groups = model.local.groups if model.local else None
    arrays, others = _numbers(batch, groups)
    _check_numbers(model, others)
    count = num_entries(batch)
    added = {column: array[:count] for column, array in extra.items()}
    if groups:
        added[groups] = np.arange(count)
    if isinstance(model.simulate_rows, AbstractHostSimulator):
        simulator = model.simulate_rows
        if missing := [c for c in simulator.columns if c not in {*arrays, *added, groups}]:
            raise _missing(missing, batch, others)
        name = _check_name(name, simulator.names)
        used = [column for column in arrays if column in simulator.known_columns] or list(arrays)
        values = _host_trial(model, name, {**{c: arrays[c] for c in used}, **added})
    else:
        shapes, used = _shapes(model, arrays, added, others)
        check_predictors(model, {*arrays, *added, *others})
        name = _check_name(name, list(shapes))
        values = shapes[name]
    if values.shape[:1] != (count,):
        raise ValueError(
            f"simulate must return {name!r} with one entry per row, shape ({count}, …); got "
            f"{values.shape}.{_about_outcomes(model, batch)}"
        )
    row_bytes = sum(array[:1].nbytes for array in (*(arrays[c] for c in used), *added.values()))
    return Trial(name, used, tuple(values.shape[1:]), row_bytes)


def check_predictors(model: Model, present: Collection[str]) -> None:
    """Refuse rows without a column that the model was fitted to and predicts from.

    A NumPyro model may have optional predictors. It would predict as if they had no effect.
    """
    known = getattr(model.simulate_rows, "columns", {})
    outcomes = getattr(model.simulate_rows, "row_axes", {})
    absent = [name for name in known if name not in present and name not in outcomes]
    if not absent:
        return
    rows = {
        name: jax.ShapeDtypeStruct((TRIAL_ROWS, *entry.shape), entry.dtype)
        for name, entry in known.items()
    }
    if missing := [name for name in _columns_simulated_from(model, rows) if name in absent]:
        raise ValueError(
            "rows must have the columns that the model was fitted to and predicts from; "
            f"{missing} are missing, and the columns are {sorted(present)}."
        )


def _columns_simulated_from(model: Model, rows: Mapping[str, jax.ShapeDtypeStruct]) -> list[str]:
    """Return the columns that simulated values depend on; none if it cannot be told."""

    def simulate(rows: dict[str, Any]) -> Any:
        if model.local is not None:
            rows = {**rows, model.local.groups: jnp.arange(TRIAL_ROWS)}
        params = model.space.constrain(jnp.zeros(model.space.dim))
        local = _trial_locals(model, TRIAL_ROWS)
        return simulate_at(model, jax.random.key(0), params, local, rows)

    try:
        jaxpr = jax.make_jaxpr(simulate)(dict(rows)).jaxpr
    except Exception:  # of the user's function, at rows that are not the user's
        return []
    _, is_used = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return [name for name, used in zip(sorted(rows), is_used, strict=True) if used]


def first_rows(stream: RowStream) -> dict[str, np.ndarray]:
    """Return the first few rows as they are."""
    for batch in stream.batches():
        as_rows({name: _same_length(column) for name, column in batch.items()})
        return {name: np.asarray(column[:TRIAL_ROWS]) for name, column in batch.items()}
    raise ValueError("rows must hold at least one row; got none.")


def _same_length(column: Any) -> Any:
    """Return zeros, one for each entry of a column of any type; a single value as it is."""
    is_single = isinstance(column, str) or not np.iterable(column)
    return column if is_single else np.broadcast_to(0, len(column))


def _numbers(
    batch: Mapping[str, np.ndarray], groups: str | None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the columns of numbers, and the dtypes of the others."""
    if groups is not None and groups not in batch:
        raise ValueError(
            f"rows must have the column {groups!r} with the group of every row; got {list(batch)}."
        )
    columns = {name: array for name, array in batch.items() if name != groups}
    others = {
        n: array.dtype for n, array in columns.items() if array.dtype.kind not in NUMBER_KINDS
    }
    return {n: native(array) for n, array in columns.items() if n not in others}, others


def _check_numbers(model: Model, others: Mapping[str, Any]) -> None:
    """Refuse columns that a model is known to take as numbers, and that hold none."""
    simulator = model.simulate_rows
    names = getattr(simulator, "arguments", getattr(simulator, "columns", ()))
    if wrong := [name for name in others if name in names]:
        raise _not_numbers(wrong[0], others)


def _not_numbers(name: str, others: Mapping[str, Any]) -> ValueError:
    return ValueError(
        f"rows[{name!r}] must hold numbers, as the model predicts from it; got dtype "
        f"{others[name]}. Encode it as in the rows that the model was fitted to."
    )


def _missing(names: list[str], batch: Mapping[str, Any], others: Mapping[str, Any]) -> ValueError:
    if names[0] in others:
        return _not_numbers(names[0], others)
    return ValueError(
        f"rows must have the columns that the model predicts from; {names} are missing, and the "
        f"columns are {sorted(batch)}."
    )


def _check_name(name: str | None, names: Any) -> str:
    if name is None and len(names) == 1:
        return str(next(iter(names)))
    if name is None or name not in names:
        raise ValueError(f"name must be what the model predicts, {sorted(names)}; got {name!r}.")
    return name


def _shapes(
    model: Model, arrays: dict[str, np.ndarray], added: dict[str, Any], others: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the shapes of what the model predicts, and the columns that it uses."""
    rows = {**arrays, **added}
    recorders: list[_Recorder] = []

    def run(point: Any, local: Any, rows: Any) -> Any:
        params = model.space.constrain(point)
        return simulate_at(model, jax.random.key(0), params, local, rows)

    def run_recorded(point: Any, local: Any, rows: Any) -> Any:
        recorders.append(_Recorder(rows))
        return run(point, local, recorders[-1])

    point = np.zeros(model.space.dim)
    local = _trial_locals(model, num_entries(rows)) if rows else {}
    try:
        try:
            shapes = jax.eval_shape(run_recorded, point, local, rows)
            used = [column for column in arrays if column in recorders[0].used] or list(arrays)
        except Exception:  # perhaps it takes a plain dict only
            shapes = jax.eval_shape(run, point, local, rows)
            used = list(arrays)
    except Exception as error:  # of the user's function
        if isinstance(error, KeyError) and error.args and error.args[0] in others:
            raise _not_numbers(error.args[0], others) from error
        raise _failure(model, rows, error) from error
    return dict(shapes), used


def _failure(model: Model, rows: Mapping[str, Any], error: Exception) -> ValueError:
    """Return the error of a model that fails: columns are missing, or of another type or shape."""
    observed = getattr(model.simulate_rows, "row_axes", {})
    known = model.columns or ()
    if absent := [name for name in known if name not in rows and name not in observed]:
        return ValueError(
            f"rows must have the columns that the model predicts from; of those that it was fitted "
            f"to, {absent} are missing, and it fails with {sorted(rows)} ({describe(error)})."
        )
    columns = ", ".join(f"{name}: {_entry_type(array)}" for name, array in sorted(rows.items()))
    return ValueError(
        "rows must have the columns that the model predicts from, with the types and shapes of "
        f"those that it was fitted to; it fails on new rows with {columns} ({describe(error)})."
        f"{_about_outcomes(model, rows)}"
    )


def _about_outcomes(model: Model, rows: Mapping[str, Any]) -> str:
    """Return what to try if a model may take its number of rows from an outcome they lack."""
    if not (absent := [name for name in model.columns or () if name not in rows]):
        return ""
    return (
        f" If the model takes the number of rows from {absent}, give the new rows such a column, "
        "with any values."
    )


def _entry_type(array: Any) -> str:
    """Return the type of a column in words, with the shape of an entry that is no number."""
    shape = np.shape(array)[1:]
    return f"{array.dtype}" + (f" of shape {shape}" if shape else "")


def index_check(model: Model) -> Callable[[Mapping[str, Any]], None]:
    """Return a check that rows have no numbers beyond the model's entries, batch after batch."""
    if isinstance(model.simulate_rows, AbstractHostSimulator):
        return lambda _: None  # such a simulator raises an error

    def simulate(rows: dict[str, Any]) -> Any:
        count = num_entries(rows)
        if model.local is not None:
            rows = {**rows, model.local.groups: jnp.arange(count)}
        params = model.space.constrain(jnp.zeros(model.space.dim))
        return simulate_at(model, jax.random.key(0), params, _trial_locals(model, count), rows)

    return IndexCheck(simulate)


def _trial_locals(model: Model, count: int) -> dict[str, Any]:
    if model.local is None:
        return {}
    constrain = jax.vmap(model.local.space.constrain)
    return dict(constrain(jnp.zeros((count, model.local.space.dim))))


def _host_trial(model: Model, name: str, rows: dict[str, np.ndarray]) -> np.ndarray:
    params = model.space.constrain(jnp.zeros(model.space.dim))
    one_draw = {key: np.asarray(value)[None] for key, value in params.items()}
    local = {key: np.asarray(v)[None] for key, v in _trial_locals(model, num_entries(rows)).items()}
    try:
        return model.simulate_rows.simulate(name, [0], one_draw, local, rows)[0]
    except Exception as error:
        raise ValueError(
            "rows must have the columns that the model predicts from, in the shapes of those that "
            f"it was fitted to; it fails on new rows with the columns {sorted(rows)} "
            f"({describe(error)})."
        ) from error
