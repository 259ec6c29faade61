"""Check before sampling that a model with local parameters has one term per row and per group.

Rows of different groups must be independent given the global parameters: at a random point, rows
and groups must have the same terms in one half of the shard, in reverse, as in all of it. The term
of a group may use columns that are constant within groups: its last row must do as well as its
first.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .._runtime import FAST_COMPILATION
from ..data.shard import Shard
from ..errors import ModelError
from ..groups.local_model import groups_of
from ..model import Model
from ..space import Point

Arrays = Mapping[str, np.ndarray]

RELATIVE_TOLERANCE = 1e-8


def check_locals(model: Model, shard: Shard, point: Point) -> None:
    """Raise `ModelError` unless rows and groups have terms of their own."""
    local = model.local
    if local is None:
        return
    groups = groups_of(shard)
    num_groups, num_rows = len(groups.weights), len(shard.weights)
    generator = np.random.default_rng(0)
    coordinates = 0.5 * generator.normal(size=(num_groups, local.space.dim))
    params, by_group, by_row, first_rows = _values_at(model, shard, point, coordinates)
    all_rows = {key: np.asarray(value) for key, value in shard.rows.items()}
    terms = {
        "log_likelihood": (local.log_likelihood, by_row, all_rows, num_rows, "row"),
        "log_local_prior": (local.log_prior, by_group, first_rows, num_groups, "group"),
    }
    for name, (function, values, rows, count, unit) in terms.items():
        whole = _term(name, function, params, values, rows, count, unit)
        chosen = np.arange(count)[::-1][: max(1, count // 2)]
        part = _term(
            name,
            function,
            params,
            {key: value[chosen] for key, value in values.items()},
            {key: value[chosen] for key, value in rows.items()},
            len(chosen),
            unit,
        )
        if _differ(whole[chosen], part):
            raise ModelError(
                f"{name} must return one value per {unit} that depends on this {unit} alone; the "
                f"same {unit} has other values among {count} {unit}s than among {len(chosen)}. "
                "Compute what it needs of all rows beforehand."
            )
    last = _last_rows(all_rows[local.groups], first_rows[local.groups])
    last_rows = {key: value[last] for key, value in all_rows.items()}
    name, unit = "log_local_prior", "group"
    terms_of_rows = [
        _term(name, local.log_prior, params, by_group, rows, num_groups, unit)
        for rows in (first_rows, last_rows)
    ]
    if _differ(*terms_of_rows):
        raise ModelError(
            "log_local_prior may use columns that are constant within groups; it has other values "
            "for the first row of a group than for the last. Use columns that vary in "
            "log_likelihood, or take one value per group beforehand, e.g. their mean."
        )


def _values_at(
    model: Model, shard: Shard, point: Point, coordinates: np.ndarray
) -> tuple[Arrays, Arrays, Arrays, Arrays]:
    """Return params, local params by group and by row, and the first row of every group."""

    @partial(jax.jit, compiler_options=FAST_COMPILATION)
    def values(point: Point, coordinates: Array, shard: Shard) -> Any:
        assert model.local is not None
        groups = groups_of(shard)
        local = model.local.constrain(coordinates)
        of_row = {name: groups.spread(value, len(shard.weights)) for name, value in local.items()}
        return model.space.constrain(point), local, of_row, groups.first_rows(shard.rows)

    # in NumPy: JAX would compile a program for every selection of rows
    return jax.tree.map(np.asarray, values(point, coordinates, shard))


def _differ(first: np.ndarray, second: np.ndarray) -> bool:
    finite = np.isfinite(first) & np.isfinite(second)
    change = np.abs(first - second)[finite]
    return bool((change > RELATIVE_TOLERANCE * (1 + np.abs(second[finite]))).any())


def _last_rows(codes: np.ndarray, groups: np.ndarray) -> Int[np.ndarray, " group"]:
    """Return the index of the last row of every group."""
    reverse = codes[::-1]
    unique, indices = np.unique(reverse, return_index=True)
    return len(reverse) - 1 - indices[np.searchsorted(unique, groups)]


def _term(
    name: str, function: Any, params: Arrays, local: Arrays, rows: Arrays, count: int, unit: str
) -> np.ndarray:
    try:
        values = jax.jit(function, compiler_options=FAST_COMPILATION)(params, local, rows)
    except KeyError as error:
        raise ModelError(
            f"{name} asks for {error}; the params are {sorted(params)}, the local params "
            f"{sorted(local)}, the rows {sorted(rows)}."
        ) from error
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"{name} failed on {count} {unit}s ({type(error).__name__}: {error})."
        ) from error
    if jnp.shape(values) != (count,):
        raise ModelError(
            f"{name} must return one value per {unit}, shape ({count},); got shape "
            f"{jnp.shape(values)}."
        )
    return np.asarray(values)
