"""Check before sampling that a model with local parameters has one term per row and per group.

Rows of different groups must be independent given the global parameters: at a random point, rows
and groups must have the same terms in one half of the shard as in all of it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.shard import Shard
from ..errors import ModelError
from ..groups.local_model import groups_of
from ..model import Model
from ..space import Params, Point

RELATIVE_TOLERANCE = 1e-8


def check_locals(model: Model, shard: Shard, point: Point) -> None:
    """Raise `ModelError` unless rows and groups have terms of their own."""
    local = model.local
    if local is None:
        return
    groups = groups_of(shard)
    num_groups, num_rows = len(groups.weights), len(shard.weights)
    params = model.space.constrain(point)
    generator = np.random.default_rng(0)
    coordinates = jnp.asarray(0.5 * generator.normal(size=(num_groups, local.space.dim)))
    by_group = local.constrain(coordinates)
    by_row = {name: groups.spread(value, num_rows) for name, value in by_group.items()}
    first_rows = groups.first_rows(shard.rows)
    terms = {
        "log_likelihood": (local.log_likelihood, by_row, shard.rows, num_rows, "row"),
        "log_local_prior": (local.log_prior, by_group, first_rows, num_groups, "group"),
    }
    for name, (function, values, rows, count, unit) in terms.items():
        whole = _term(name, function, params, values, rows, count, unit)
        half = max(1, count // 2)
        part = _term(
            name,
            function,
            params,
            {key: value[:half] for key, value in values.items()},
            {key: value[:half] for key, value in rows.items()},
            half,
            unit,
        )
        finite = np.isfinite(whole[:half]) & np.isfinite(part)
        change = np.abs(whole[:half] - part)[finite]
        if (change > RELATIVE_TOLERANCE * (1 + np.abs(part[finite]))).any():
            raise ModelError(
                f"{name} must return one value per {unit} that depends on this {unit} alone; the "
                f"same {unit} has other values among {count} {unit}s than among {half}. Compute "
                "what it needs of all rows beforehand."
            )


def _term(
    name: str, function: object, params: Params, local: Params, rows: Params, count: int, unit: str
) -> np.ndarray:
    try:
        values: Array = jax.jit(function)(params, local, rows)  # type: ignore[call-overload]
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
