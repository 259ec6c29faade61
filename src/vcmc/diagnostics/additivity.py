"""Check before sampling that the shards' log densities add up to the full one.

They do if and only if the log likelihood of a row does not depend on the other rows: at a random
point, rows must have the same log likelihood in two halves as all together. Likewise, components
that are declared exchangeable must have the same density however they are labelled.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._runtime import FAST_COMPILATION, compiled_per_model
from ..data.rows import Rows
from ..data.shard import Shard
from ..errors import ModelError
from ..model import Model
from ..space import Point

MIN_ROUNDED = 1024  # rows: fewer are compared, all of them
MAX_ROWS = 20_000  # compared in each half: enough for any statistic of rows to show
RELATIVE_TOLERANCE = 1e-8  # halves and whole run the same arithmetic on the same rows …
MAX_ROUNDING_ERRORS = 1e4  # … in rounding errors of the log likelihood's own precision

# Relative: relabelling changes the order of sums, and may pass through a bijection and back.
LABEL_TOLERANCE = 1e-8
NUM_LABELLED_ROWS = 100  # whose log likelihoods are compared under other labels


def check_additivity(model: Model, shards: list[Shard], point: Point) -> None:
    """Raise `ModelError` unless rows have the same log likelihood apart as together."""
    halves = _two_parts(shards)
    whole = {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
    params = jax.jit(model.space.constrain)(point)
    shape = jax.eval_shape(lambda params: jnp.asarray(model.log_prior(params)), params).shape
    if shape != ():
        raise ModelError(
            f"log_prior must return a single number; got shape {shape}. Sum it over the parameters."
        )
    separate = np.concatenate([_row_log_likelihood(model, params, half) for half in halves])
    joint = _row_log_likelihood(model, params, whole)
    # Values that are not finite are refused when starting points are chosen.
    finite = np.isfinite(separate) & np.isfinite(joint)
    differences = np.zeros(len(joint))
    differences[finite] = np.abs(separate[finite] - joint[finite]) / (1 + np.abs(joint[finite]))
    worst = int(np.argmax(differences))
    rounding_error = np.finfo(joint.dtype).eps
    if differences[worst] > max(RELATIVE_TOLERANCE, MAX_ROUNDING_ERRORS * rounding_error):
        raise ModelError(
            "the shards' log likelihoods must add up to the full one, but they do not: at a random "
            f"point, the same row has log likelihood {joint[worst]:.6g} among {len(joint)} "
            f"rows and {separate[worst]:.6g} among {len(separate) // 2} of them (sums: "
            f"{joint.sum():.6g} and {separate.sum():.6g}). The model probably uses a statistic of "
            "all its rows: it standardizes them, takes a mean, a maximum or a rank, or divides by "
            "their number. Compute it once, beforehand, and pass the result."
        )


def _two_parts(shards: list[Shard]) -> list[dict[str, np.ndarray]]:
    """Return equally many rows of two shards, or of two parts of one: equal shapes compile once.

    If they are many, their number is a power of two: the next update finds programs in the cache.
    """
    if len(shards) > 1:
        length = _rounded(min(shards[0].num_rows, shards[1].num_rows, MAX_ROWS))
        pairs = [(shard.rows, slice(0, length)) for shard in shards[:2]]
    else:
        length = _rounded(max(1, min(shards[0].num_rows // 2, MAX_ROWS)))
        pairs = [(shards[0].rows, slice(0, length)), (shards[0].rows, slice(-length, None))]
    # in NumPy: JAX would compile a program for every shape
    return [{name: np.asarray(array)[part] for name, array in rows.items()} for rows, part in pairs]


def _rounded(count: int) -> int:
    """Return the largest power of two that is not above a number of rows, if it is large."""
    return count if count < MIN_ROUNDED else 1 << (count.bit_length() - 1)


def _row_log_likelihood(model: Model, params: dict[str, Array], rows: Rows) -> np.ndarray:
    num_rows = len(next(iter(rows.values())))
    try:
        values = _log_likelihood(model, params, rows)
    except KeyError as error:
        raise ModelError(
            f"log_likelihood asks for {error}; the rows are {sorted(rows)}, the params "
            f"{sorted(params)}."
        ) from error
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"log_likelihood failed on {num_rows} of the rows ({type(error).__name__}: {error}). "
            "If it runs on all rows, a size is hard-coded in it: use rows[...].shape[0] instead. "
            "If not, compare the shapes of rows and params."
        ) from error
    if jnp.shape(values) != (num_rows,):
        raise ModelError(
            f"log_likelihood must return one value per row, shape ({num_rows},); got shape "
            f"{jnp.shape(values)}. Do not sum over rows; sum over the other axes."
        )
    return np.asarray(values)


@compiled_per_model
@partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILATION)
def _log_likelihood(model: Model, params: dict[str, Array], rows: Rows) -> Array:
    return model.log_likelihood(params, rows)


def check_labels(model: Model, shard: Shard, point: Point) -> None:
    """Raise `ModelError` unless prior and likelihood are invariant to relabelling components."""
    rows = {name: np.asarray(array)[:NUM_LABELLED_ROWS] for name, array in shard.rows.items()}

    def log_densities(point: Point) -> np.ndarray:
        per_row = _log_likelihood(model, model.space.constrain(point), rows)
        return np.append(np.asarray(per_row), float(model.log_prior_at(point)))

    for count in sorted({part.num_labels for part in model.space.values() if part.num_labels}):
        before = log_densities(point)
        for order in (np.roll(np.arange(count), 1), np.r_[1, 0, 2:count][:count]):
            after = log_densities(model.space.relabel(point, jnp.asarray(order)))
            # Infinities are equal, or are refused when starting points are chosen.
            with np.errstate(invalid="ignore"):
                tolerance = LABEL_TOLERANCE * (1 + np.abs(before))
                same = (before == after) | (np.abs(before - after) <= tolerance)
            if not (same | (np.isnan(before) & np.isnan(after))).all():
                changed = "prior" if same[:-1].all() else "likelihood"
                raise ModelError(_not_exchangeable(model, count, changed))


def _not_exchangeable(model: Model, count: int, changed: str) -> str:
    labelled = [name for name, part in model.space.items() if part.num_labels == count]
    others = [name for name in model.space if name not in labelled]
    return (
        f"{labelled} are declared to have {count} exchangeable components, but the log {changed} "
        "changes when they are relabelled. Either they are not exchangeable, or another parameter "
        f"has the same labels (one of {others}?): declare it, too, with space=, e.g. "
        f'{{"weights": vcmc.Simplex({count}, exchangeable=True)}} or vcmc.Exchangeable({count}, …).'
    )
