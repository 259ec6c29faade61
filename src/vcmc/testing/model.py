r"""The laws of a model.

$$\sum_k \log p_k(u) = \log p(u), \qquad p_k \propto \text{prior}^{1/K} \times \text{the shard's likelihood},$$

and what it takes that shards can be sampled and evaluated at all: one value per row, the same whenever it is asked for, under `jax.jit`
and `jax.vmap` too, finite, and with a gradient that is one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.cache import ShardCache
from ..data.partition import split
from ..data.rows import Rows, as_rows
from ..data.shard import Shard, Shards
from ..density import Subposterior, evaluate
from ..diagnostics.additivity import check_additivity, check_labels
from ..errors import ModelError
from ..executors import Local
from ..model import Model
from ..space import Params, Point, Scalar
from ..target import Target
from .law import Law, LawError

NUM_POINTS = 5
STEP = 1e-5  # of finite differences: the cube root of the rounding error, about
ROUNDINGS = (
    1e4  # rounding errors of a log density, in its own precision, that a sum over rows may gather
)

Reference = Callable[[Params, Rows], Any]


def check_model(
    model: Model,
    rows: Any,
    *,
    num_shards: int = 4,
    log_density: Reference | None = None,
    points: Float[Array, "point dim"] | None = None,
    seed: int = 0,
) -> None:
    """Raise `LawError` unless a model keeps its laws on some rows; a few hundred will do.

    Args:
        model: the model.
        rows: as `infer` takes them: a mapping of arrays, or a frame.
        num_shards: how many shards they are dealt into. If that makes all of one size, the last row is left out, as shards of unequal
            sizes are padded, and padding must not count.
        log_density: the log of prior times likelihood of all rows, from params and rows, written another way: with SciPy, say. It need
            not be traceable, and is compared up to a constant. Without it nobody can tell that a prior was tempered by its author.
        points: where laws are checked, in real coordinates; by default five standard normal ones.
        seed: seed of the dealing and of the points.
    """
    arrays = _uneven(as_rows(rows), num_shards)
    partition = split(arrays, num_shards, seed=seed)
    model = model.fitted(ShardCache(model, partition).shards)
    if points is None:
        points = jax.random.normal(jax.random.key(seed), (NUM_POINTS, model.space.dim))
    if points.shape[1:] != (model.space.dim,) or len(points) < 2:
        raise ValueError(
            f"points must be two or more, of {model.space.dim} coordinates; got shape {points.shape}."
        )
    whole = split(arrays, 1).load(0)
    _one_value_per_row(model, whole, points[0])
    _pure(model, whole, points[0])
    _traceable(model, whole, points)
    _row_by_row(model, ShardCache(model, partition).shards, points[0])
    log_densities, scores = _finite(model, whole, points)
    target = Target(model, partition, Local())
    _adds_up(target, points, log_densities, scores)
    _gradient(target.pilot, points[0])
    if log_density is not None:
        _as_written(model, whole, log_density, points)


def _uneven(rows: dict[str, np.ndarray], num_shards: int) -> dict[str, np.ndarray]:
    num_rows = len(next(iter(rows.values())))
    even = num_shards > 1 and num_rows > num_shards and num_rows % num_shards == 0
    return {name: array[:-1] for name, array in rows.items()} if even else rows


def _law(model: Model, says: str, hint: str) -> Law:
    return Law(repr(model), says, hint)


def _one_value_per_row(model: Model, shard: Shard, point: Point) -> None:
    """Run outside of `jit`, so that what fails here is not for tracing."""
    law = _law(
        model,
        "log_likelihood returns one value per row",
        "sum over the axes of a row, and never over rows.",
    )
    prior = _law(model, "log_prior returns a single number", "sum it over the parameters.")
    params = model.space.constrain(point)
    try:
        values, value = model.log_likelihood(params, shard.rows), model.log_prior(params)
    except Exception as error:
        raise _law(
            model,
            "log_prior and log_likelihood can be called",
            f"compare the names and shapes of params ({_shapes(params)}) and of rows ({_shapes(shard.rows)}).",
        ).broken("log densities", f"{type(error).__name__}: {error}") from error
    count = len(shard.weights)
    law.holds(np.shape(values) == (count,), f"shape ({count},)", f"shape {np.shape(values)}")
    prior.holds(np.shape(value) == (), "shape ()", f"shape {np.shape(value)}")


def _shapes(arrays: Any) -> str:
    return ", ".join(f"{name}: {np.shape(array)}" for name, array in arrays.items())


def _parts(model: Model, rows: Rows, point: Point) -> np.ndarray:
    """Every row's log likelihood, and the log prior."""
    params = model.space.constrain(point)
    return np.append(
        np.asarray(model.log_likelihood(params, rows)), np.asarray(model.log_prior(params))
    )


def _pure(model: Model, shard: Shard, point: Point) -> None:
    law = _law(
        model,
        "two calls give the same values",
        "keep no state, and draw no random numbers, in a model.",
    )
    law.close(_parts(model, shard.rows, point), _parts(model, shard.rows, point))


def _traceable(model: Model, shard: Shard, points: Float[Array, "point dim"]) -> None:
    law = _law(
        model,
        "it runs under jax.jit and jax.vmap, with the same values",
        "compute with jax.numpy in place of NumPy, and write jnp.where or jax.lax.cond in place of an if on values.",
    )
    try:
        per_row, priors = _batch(model, points, shard.rows)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise law.broken("values", f"{type(error).__name__}: {reason}") from error
    found = np.concatenate([np.asarray(per_row), np.asarray(priors)[:, None]], axis=1)
    expected = np.stack([_parts(model, shard.rows, point) for point in points])
    law.close(found, expected, rtol=_tolerance(expected, 1e-9), atol=_tolerance(expected, 1e-9))


@partial(jax.jit, static_argnums=0)
def _batch(model: Model, points: Float[Array, "point dim"], rows: Rows) -> tuple[Array, Array]:
    def one(point: Point) -> tuple[Array, Scalar]:
        params = model.space.constrain(point)
        return model.log_likelihood(params, rows), jnp.asarray(model.log_prior(params))

    return jax.vmap(one)(points)


def _tolerance(values: np.ndarray, least: float) -> float:
    return (
        max(least, ROUNDINGS * float(np.finfo(values.dtype).eps))
        if values.dtype != float
        else least
    )


def _row_by_row(model: Model, shards: Shards, point: Point) -> None:
    """The checks that `infer` makes before it samples."""
    try:
        check_additivity(model, [shards[0], shards[1]] if len(shards) > 1 else [shards[0]], point)
        check_labels(model, shards[0], point)
    except ModelError as error:
        raise LawError(f"{model!r} breaks a law: it may be sharded. {error}") from error


def _finite(
    model: Model, shard: Shard, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    law = _law(
        model,
        "log density and score are finite at any point",
        "look for logarithms of what underflows (logcdf in place of log(cdf), log_softmax in place of log(softmax)), for parameters whose "
        "space is too large, and for jnp.where around a branch that is not finite; if the points are the trouble, give points=.",
    )
    found = evaluate(Subposterior(model, shard, jnp.asarray(1.0)), points)
    law.has_shape(found[0], (len(points),), "log densities")
    law.has_shape(found[1], points.shape, "scores")
    return found


def _adds_up(
    target: Target,
    points: Float[Array, "point dim"],
    log_densities: Float[Array, " point"],
    scores: Float[Array, "point dim"],
) -> None:
    law = _law(
        target.model,
        f"the log densities of {target.num_shards} shards, each with the prior to the power 1/{target.num_shards}, add up to that of all rows",
        "let a row's log likelihood depend on that row and on params alone, and leave tempering to vcmc.",
    )
    summed, summed_scores = target(points)
    law.close(summed, log_densities, rtol=_tolerance(np.asarray(log_densities), 1e-12), atol=1e-12)
    tolerance = _tolerance(np.asarray(scores), 1e-9)
    law.close(summed_scores, scores, rtol=tolerance, atol=tolerance)


def _gradient(density: Subposterior, point: Point) -> None:
    law = _law(
        density.model,
        "scores are gradients, by finite differences",
        "look for jax.lax.stop_gradient, for values rounded or turned into whole numbers, and for custom derivatives.",
    )
    offsets = STEP * jnp.eye(len(point))
    around = jnp.concatenate([point[None], point + offsets, point - offsets])
    log_densities, scores = (np.asarray(part) for part in evaluate(density, around))
    above, below = np.split(log_densities[1:], 2)
    rounding = 10 * np.finfo(log_densities.dtype).eps * np.abs(log_densities[0]) / STEP
    law.close(scores[0], (above - below) / (2 * STEP), rtol=1e-6, atol=1e-6 + rounding)


def _as_written(
    model: Model, shard: Shard, log_density: Reference, points: Float[Array, "point dim"]
) -> None:
    law = _law(
        model,
        "prior times likelihood is the density that it stands for",
        "look at what differs between the params; and do not temper the prior or scale the likelihood: vcmc does.",
    )
    every = [model.space.constrain(point) for point in points]
    found = np.array([_parts(model, shard.rows, point).sum() for point in points])
    expected = np.array([float(log_density(params, shard.rows)) for params in every])
    scale = np.abs(expected).max()
    law.close(found - found[0], expected - expected[0], rtol=1e-8, atol=1e-10 * scale)
