"""Check before sampling that a model may be sharded, and that every shard says something.

At random points the log likelihood of rows must not depend on which other rows stand beside them:
then, and only then, do the shards' log densities add up to the full one.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..data.cache import ShardCache, Task
from ..data.rows import Rows
from ..data.shard import Shard
from ..density import Subposterior
from ..errors import ModelError
from ..model import Model
from ..space import Point
from ..target import Target

MAX_ROWS = 20_000  # rows compared in each half: enough for any statistic of rows to show
TOLERANCE = 1e-8  # relative; the halves and the whole run the same arithmetic on the same rows
ROUNDINGS = 1e4  # or so many times the rounding error of the log likelihood's own precision

LABEL_TOLERANCE = (
    1e-8  # relative; relabelling changes the order of sums, and may go through a bijection and back
)
NUM_LABELLED = 100  # rows whose log likelihoods are compared under other labels


def check_additivity(model: Model, shards: list[Shard], point: Point) -> None:
    """Raise `ModelError` unless rows get the same log likelihood apart as together."""
    halves = _two_parts(shards)
    whole = {name: jnp.concatenate([half[name] for half in halves]) for name in halves[0]}
    params = jax.jit(model.space.constrain)(point)
    shape = jax.eval_shape(lambda params: jnp.asarray(model.log_prior(params)), params).shape
    if shape != ():
        raise ModelError(
            f"log_prior must return a single number; got shape {shape}. Sum it over the parameters."
        )
    apart = np.concatenate([_row_log_likelihood(model, params, half) for half in halves])
    together = _row_log_likelihood(model, params, whole)
    comparable = np.isfinite(apart) & np.isfinite(together)  # what is not is refused at the start
    gap = np.zeros(len(together))
    gap[comparable] = np.abs(apart[comparable] - together[comparable]) / (
        1 + np.abs(together[comparable])
    )
    worst = int(np.argmax(gap))
    if gap[worst] > max(TOLERANCE, ROUNDINGS * np.finfo(together.dtype).eps):
        raise ModelError(
            "the shards' log likelihoods must add up to the full one, but they do not: at a random point, "
            f"the same row has log likelihood {together[worst]:.6g} among {len(together)} rows and "
            f"{apart[worst]:.6g} among {len(apart) // 2} of them (sums: {together.sum():.6g} against "
            f"{apart.sum():.6g}). It looks as if the model uses a statistic of all its rows: it standardises "
            "them inside, takes a mean, a maximum or a rank, or divides by their number. Compute that "
            "once, before vcmc sees the rows, and pass the result."
        )


def _two_parts(shards: list[Shard]) -> list[dict[str, Array]]:
    """As many rows of two shards, or of two parts of the only one: equal shapes compile once."""
    if len(shards) > 1:
        length = min(shards[0].num_rows, shards[1].num_rows, MAX_ROWS)
        pairs = [(shard.rows, slice(0, length)) for shard in shards[:2]]
    else:
        length = max(1, min(shards[0].num_rows // 2, MAX_ROWS))
        pairs = [(shards[0].rows, slice(0, length)), (shards[0].rows, slice(-length, None))]
    return [{name: array[part] for name, array in rows.items()} for rows, part in pairs]


def _row_log_likelihood(model: Model, params: dict[str, Array], rows: Rows) -> np.ndarray:
    num_rows = len(next(iter(rows.values())))
    try:
        values = _log_likelihood(model, params, rows)
    except KeyError as error:
        raise ModelError(
            f"log_likelihood asks for {error}; the rows are {sorted(rows)}, the params {sorted(params)}."
        ) from error
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"log_likelihood failed on {num_rows} of the rows ({type(error).__name__}: {error}). If it runs "
            "on all rows, a size is hard-coded in it: write rows[...].shape[0] in its place. If it does not, "
            "compare the shapes of rows and params."
        ) from error
    if jnp.shape(values) != (num_rows,):
        raise ModelError(
            f"log_likelihood must return one value per row, shape ({num_rows},); got shape "
            f"{jnp.shape(values)}. Do not sum over rows; sum over the other axes."
        )
    return np.asarray(values)


@eqx.filter_jit
def _log_likelihood(model: Model, params: dict[str, Array], rows: Rows) -> Array:
    return model.log_likelihood(params, rows)


def check_labels(model: Model, shard: Shard, point: Point) -> None:
    """Raise `ModelError` unless prior and likelihood are the same however exchangeable components are labelled."""
    rows = {name: array[:NUM_LABELLED] for name, array in shard.rows.items()}

    def parts(point: Point) -> np.ndarray:
        per_row = _log_likelihood(model, model.space.constrain(point), rows)
        return np.append(np.asarray(per_row), float(model.log_prior_at(point)))

    for count in sorted(
        {inside.num_labels for inside in model.space.values() if inside.num_labels}
    ):
        before = parts(point)
        for order in (np.roll(np.arange(count), 1), np.r_[1, 0, 2:count][:count]):
            after = parts(model.space.relabel(point, jnp.asarray(order)))
            with np.errstate(invalid="ignore"):  # infinities are equal, or refused at the start
                same = (before == after) | (
                    np.abs(before - after) <= LABEL_TOLERANCE * (1 + np.abs(before))
                )
            if not (same | (np.isnan(before) & np.isnan(after))).all():
                raise ModelError(
                    _not_exchangeable(model, count, "prior" if same[:-1].all() else "likelihood")
                )


def _not_exchangeable(model: Model, count: int, part: str) -> str:
    labelled = [name for name, inside in model.space.items() if inside.num_labels == count]
    others = [name for name in model.space if name not in labelled]
    return (
        f"{labelled} are said to have {count} exchangeable components, but the log {part} changes when they are relabelled. "
        f"Either they are not exchangeable, or another parameter has the same labels (one of {others}?): say so, too, with "
        f'space=, as in {{"weights": vcmc.Simplex({count}, exchangeable=True)}} or vcmc.Exchangeable({count}, …).'
    )


class ShardFacts(NamedTuple):
    """What was seen of a shard where it is: on which coordinates it says nothing, its rows' number, with padding too, their kinds and checksum."""

    silent: Bool[np.ndarray, " dim"]
    num_rows: int
    num_padded: int
    kinds: dict[str, str]
    checksum: str


def shard_facts(
    target: Target, points: Float[Array, "point dim"], with_checksums: bool = False
) -> list[ShardFacts]:
    """Look at every shard, wherever it is."""
    work = partial(_look, points=np.asarray(points), with_checksum=with_checksums)
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    found: list[ShardFacts] = list(target.executor.map(work, tasks, target.shard_cache))
    for shard, facts in enumerate(found):
        if facts.kinds != found[0].kinds:
            raise ValueError(
                f"all shards must have rows of one kind; shard 0 has {found[0].kinds}, shard {shard} has {facts.kinds}."
            )
    return found


def _look(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: np.ndarray,
    with_checksum: bool,
) -> ShardFacts:
    del advance
    density = shard_cache.density(task.shards[0])
    shard = density.shard
    silent = np.asarray(_silent(density, jnp.asarray(points)))
    kinds = {
        name: f"{array.dtype}{list(array.shape[1:])}" for name, array in sorted(shard.rows.items())
    }
    return ShardFacts(
        silent, shard.num_rows, len(shard.weights), kinds, shard.checksum() if with_checksum else ""
    )


def check_information(
    target: Target, points: Float[Array, "point dim"], facts: list[ShardFacts]
) -> list[str]:
    """Warnings on shards whose rows do not say anything on some coordinate.

    Raises `ModelError` where the prior says nothing on it either: that shard has no posterior.
    """
    silent = np.stack([each.silent for each in facts])
    flat_prior = np.asarray(_flat_prior(target.pilot, points))
    names = np.array(target.model.space.coordinates)
    improper = silent & flat_prior
    if improper.any():
        shard = int(np.argmax(improper.any(axis=1)))
        raise ModelError(
            f"every shard must have a proper posterior, but the rows of {improper.any(axis=1).sum()} of "
            f"{len(silent)} shards say nothing on some coordinate whose prior is flat (shard {shard}: "
            f"{', '.join(names[improper[shard]][:5])}). Give it a proper prior, deal rare rows evenly with "
            "vcmc.split(rows, num_shards, stratify=…), or use fewer shards."
        )
    # What no shard's rows bear on is a matter of the model, as in a hierarchical one, and no fault of the dealing.
    return [
        f"{silent[:, index].sum()} of {len(silent)} shards hold no information on {names[index]} and "
        "return its tempered prior; try vcmc.split(..., stratify=...) or fewer shards."
        for index in np.flatnonzero(silent.any(axis=0) & ~silent.all(axis=0))
    ]


@eqx.filter_jit
def _silent(density: Subposterior, points: Float[Array, "point dim"]) -> Bool[Array, " dim"]:
    """Coordinates on which a shard's log likelihood does not depend, at any of the points."""
    score = jax.grad(density.model.log_likelihood_at)
    return jnp.all(jax.vmap(score, in_axes=(0, None))(points, density.shard) == 0, axis=0)


@eqx.filter_jit
def _flat_prior(density: Subposterior, points: Float[Array, "point dim"]) -> Bool[Array, " dim"]:
    return jnp.all(jax.vmap(jax.grad(density.model.log_prior_at))(points) == 0, axis=0)
