r"""The laws of a model.

$$\sum_k \log p_k(u) = \log p(u), \qquad
p_k \propto \text{prior}^{1/K} \times \text{the shard's likelihood}.$$

Besides, the log likelihood has one value per row, is deterministic, runs under `jax.jit` and
`jax.vmap`, is finite, and has the right gradient.
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
from ..diagnostics.additivity import MAX_ROUNDING_ERRORS, check_additivity, check_labels
from ..errors import ModelError
from ..executors import Local
from ..model import Model
from ..space import Params, Point, Scalar
from ..target import Target
from .law import Law, LawError

NUM_POINTS = 5  # at which laws are checked, by default
STEP = 1e-5  # of finite differences: about the cube root of the rounding error

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
    """Raise `LawError` unless a model obeys the laws of models.

    Args:
        model: the model.
        rows: a few hundred rows, as `infer` takes them: a mapping of arrays, or a data frame.
        num_shards: number of shards. If they were all of one size, the last row is dropped: shards
            of unequal sizes are padded, and padding must not count.
        log_density: a function of params and rows that returns log prior plus log likelihood,
            written independently, e.g. with SciPy. It need not be traceable, and is compared up to
            a constant. Only this comparison can detect that the prior was tempered by hand.
        points: points to check the laws at, in unconstrained coordinates; by default five standard
            normal ones.
        seed: seed of the split and of the points.
    """
    arrays = _drop_last_if_even(as_rows(rows), num_shards)
    partition = split(arrays, num_shards, seed=seed)
    model = model.fitted(ShardCache(model, partition).shards)
    if points is None:
        points = jax.random.normal(jax.random.key(seed), (NUM_POINTS, model.space.dim))
    if points.shape[1:] != (model.space.dim,) or len(points) < 2:
        raise ValueError(
            f"points must be two or more, of {model.space.dim} coordinates; "
            f"got shape {points.shape}."
        )
    whole = split(arrays, 1).load(0)
    _check_shapes(model, whole, points[0])
    _check_deterministic(model, whole, points[0])
    _check_traceable(model, whole, points)
    _check_shardable(model, ShardCache(model, partition).shards, points[0])
    log_densities, scores = _check_finite(model, whole, points)
    target = Target(model, partition, Local())
    _check_sum(target, points, log_densities, scores)
    _check_gradient(target.pilot, points[0])
    if log_density is not None:
        _check_density(model, whole, log_density, points)


def _drop_last_if_even(rows: dict[str, np.ndarray], num_shards: int) -> dict[str, np.ndarray]:
    num_rows = len(next(iter(rows.values())))
    even = num_shards > 1 and num_rows > num_shards and num_rows % num_shards == 0
    return {name: array[:-1] for name, array in rows.items()} if even else rows


def _law(model: Model, statement: str, hint: str) -> Law:
    return Law(repr(model), statement, hint)


def _check_shapes(model: Model, shard: Shard, point: Point) -> None:
    """Check the shapes outside of `jit`, so that failures here are not due to tracing."""
    law = _law(
        model,
        "log_likelihood returns one value per row",
        "sum over the axes of a row, never over rows.",
    )
    prior = _law(model, "log_prior returns a single number", "sum it over the parameters.")
    params = model.space.constrain(point)
    try:
        values, value = model.log_likelihood(params, shard.rows), model.log_prior(params)
    except Exception as error:
        raise _law(
            model,
            "log_prior and log_likelihood can be called",
            f"compare the names and shapes of params ({_shapes(params)}) "
            f"and of rows ({_shapes(shard.rows)}).",
        ).broken("log densities", f"{type(error).__name__}: {error}") from error
    count = len(shard.weights)
    law.holds(np.shape(values) == (count,), f"shape ({count},)", f"shape {np.shape(values)}")
    prior.holds(np.shape(value) == (), "shape ()", f"shape {np.shape(value)}")


def _shapes(arrays: Any) -> str:
    return ", ".join(f"{name}: {np.shape(array)}" for name, array in arrays.items())


def _parts(model: Model, rows: Rows, point: Point) -> np.ndarray:
    """Return the log likelihood of every row, followed by the log prior."""
    params = model.space.constrain(point)
    return np.append(
        np.asarray(model.log_likelihood(params, rows)), np.asarray(model.log_prior(params))
    )


def _check_deterministic(model: Model, shard: Shard, point: Point) -> None:
    law = _law(
        model,
        "two calls give the same values",
        "keep no state and draw no random numbers in a model.",
    )
    law.close(_parts(model, shard.rows, point), _parts(model, shard.rows, point))


def _check_traceable(model: Model, shard: Shard, points: Float[Array, "point dim"]) -> None:
    law = _law(
        model,
        "it runs under jax.jit and jax.vmap, with the same values",
        "use jax.numpy instead of NumPy, and jnp.where or jax.lax.cond instead of an if on values.",
    )
    try:
        per_row, priors = _batch(model, points, shard.rows)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise law.broken("values", f"{type(error).__name__}: {reason}") from error
    actual = np.concatenate([np.asarray(per_row), np.asarray(priors)[:, None]], axis=1)
    expected = np.stack([_parts(model, shard.rows, point) for point in points])
    tolerance = _tolerance(expected, 1e-9)
    law.close(actual, expected, rtol=tolerance, atol=tolerance)


@partial(jax.jit, static_argnums=0)
def _batch(model: Model, points: Float[Array, "point dim"], rows: Rows) -> tuple[Array, Array]:
    def at_point(point: Point) -> tuple[Array, Scalar]:
        params = model.space.constrain(point)
        return model.log_likelihood(params, rows), jnp.asarray(model.log_prior(params))

    return jax.vmap(at_point)(points)


def _tolerance(values: np.ndarray, least: float) -> float:
    """Return a tolerance that allows for the rounding errors of less than 64 bits."""
    return (
        max(least, MAX_ROUNDING_ERRORS * float(np.finfo(values.dtype).eps))
        if values.dtype != float
        else least
    )


def _check_shardable(model: Model, shards: Shards, point: Point) -> None:
    """Run the checks that `infer` makes before it samples."""
    try:
        check_additivity(model, [shards[0], shards[1]] if len(shards) > 1 else [shards[0]], point)
        check_labels(model, shards[0], point)
    except ModelError as error:
        raise LawError(f"{model!r} breaks a law: it can be sharded. {error}") from error


def _check_finite(
    model: Model, shard: Shard, points: Float[Array, "point dim"]
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
    law = _law(
        model,
        "log density and score are finite at any point",
        "look for logarithms of values that underflow (use logcdf, not log(cdf); log_softmax, not "
        "log(softmax)), for parameters whose space is too large, and for jnp.where around a branch "
        "that is not finite; if the points are too extreme, pass others with points=.",
    )
    log_densities, scores = evaluate(Subposterior(model, shard, jnp.asarray(1.0)), points)
    law.has_shape(log_densities, (len(points),), "log densities")
    law.has_shape(scores, points.shape, "scores")
    return log_densities, scores


def _check_sum(
    target: Target,
    points: Float[Array, "point dim"],
    log_densities: Float[np.ndarray, " point"],
    scores: Float[np.ndarray, "point dim"],
) -> None:
    law = _law(
        target.model,
        f"the log densities of {target.num_shards} shards, each with the prior to the power "
        f"1/{target.num_shards}, sum to that of all rows",
        "let the log likelihood of a row depend on that row and on params only, and leave "
        "tempering to vcmc.",
    )
    summed, summed_scores = target(points)
    law.close(summed, log_densities, rtol=_tolerance(np.asarray(log_densities), 1e-12), atol=1e-12)
    tolerance = _tolerance(np.asarray(scores), 1e-9)
    law.close(summed_scores, scores, rtol=tolerance, atol=tolerance)


def _check_gradient(density: Subposterior, point: Point) -> None:
    law = _law(
        density.model,
        "scores are gradients, by finite differences",
        "look for jax.lax.stop_gradient, rounding, conversion to integers, and custom derivatives.",
    )
    offsets = STEP * jnp.eye(len(point))
    points = jnp.concatenate([point[None], point + offsets, point - offsets])
    log_densities, scores = (np.asarray(part) for part in evaluate(density, points))
    above, below = np.split(log_densities[1:], 2)
    rounding = 10 * np.finfo(log_densities.dtype).eps * np.abs(log_densities[0]) / STEP
    law.close(scores[0], (above - below) / (2 * STEP), rtol=1e-6, atol=1e-6 + rounding)


def _check_density(
    model: Model, shard: Shard, log_density: Reference, points: Float[Array, "point dim"]
) -> None:
    law = _law(
        model,
        "prior times likelihood equals the density that log_density computes",
        "compare the two functions term by term; do not temper the prior or scale the likelihood, "
        "which vcmc does.",
    )
    actual = np.array([_parts(model, shard.rows, point).sum() for point in points])
    expected = np.array(
        [float(log_density(model.space.constrain(point), shard.rows)) for point in points]
    )
    scale = np.abs(expected).max()
    law.close(actual - actual[0], expected - expected[0], rtol=1e-8, atol=1e-10 * scale)
