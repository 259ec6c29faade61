r"""The log density of one shard at batches of points: values, scores and Hessian products.

$$\ell_k(u) = \sum_{n \in k} \log p(x_n \mid T(u))
  + \tau \, \bigl[\log p(T(u)) + \log |\det J_T(u)|\bigr].$$
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ._runtime import FAST_COMPILATION, compiled_per_model
from .data.shard import Shard
from .model import MAX_CACHED_BYTES, Model, Modes, block_size
from .space import Point, Scalar

BATCH_SIZE = 32  # points or directions per compiled call: each holds some numbers for every row
SMALL_BATCH_SIZE = 8  # points per compiled call, where there are a few
MAX_UNPADDED = 8  # directions: fewer have a program of their own
MAX_DIRECTIONS = 100  # directions per compiled call: matrix products are faster if large
MAX_VALUES = 2**22  # rows times directions per compiled call, to limit memory
CHUNK_SIZE = 8  # points of a small shard that are evaluated together
BUFFER_SIZE = 64  # points of a small shard per compiled call

# Hessians of small shards: central differences over a step of h sds have a relative error of the
# order of h² by their nature, and of 1e-16 √(number of rows) / h by rounding.
STEP_SD = 1e-3
MIN_STEP_SD, MAX_STEP_SD = 1e-5, 4e-3
MAX_TRIALS = 4  # of steps
MAX_DIFFERENCES = 100  # directions; each takes the scores of four points

Points = Float[Array | np.ndarray, "point dim"]
Directions = Float[Array | np.ndarray, "direction dim"]
Vector = Float[Array | np.ndarray, " dim"]


Power = Float[Array, ""] | Float[Array, "2"]
"""The power of prior and Jacobian, or of each: those of models with local parameters are a pair."""


class Subposterior(eqx.Module):
    """The log density of one shard, with the prior raised to a power.

    `is_batched` says that it is called under `vmap` with many points.
    """

    model: Model = eqx.field(static=True)
    shard: Shard
    prior_power: Power
    is_batched: bool = eqx.field(static=True, default=False)

    def __call__(self, point: Point) -> Scalar:
        log_likelihood = self.model.log_likelihood_at(point, self.shard, self.is_batched)
        return log_likelihood + self._log_prior(point)

    def _log_prior(self, point: Point) -> Scalar:
        if jnp.ndim(self.prior_power) == 0:
            return self.prior_power * self.model.log_prior_at(point)
        return jnp.dot(self.prior_power, self.model.log_prior_parts_at(point))

    def hessian_products(
        self, point: Point, directions: Float[Array, "direction dim"]
    ) -> Float[Array, "direction dim"]:
        """Return the products of the Hessian at a point with directions."""
        if self.model.local is None:
            score = jax.grad(self)
            return jax.vmap(lambda direction: jax.jvp(score, (point,), (direction,))[1])(directions)
        modes = self.with_modes(point, None)[1]
        score = jax.grad(lambda point: self.with_modes(point, modes)[0])
        return jax.lax.map(lambda direction: jax.jvp(score, (point,), (direction,))[1], directions)

    def with_modes(self, point: Point, modes: Modes | None) -> tuple[Scalar, Modes]:
        """Return the log density, and the modes of local coordinates, sought from given ones.

        Points are evaluated one after the other, each with the modes of the one before: a batch of
        them, with values for all nodes of all rows, would not fit into cache.
        """
        log_likelihood, modes = self.model.log_marginal_at(point, self.shard, modes)
        return log_likelihood + self._log_prior(point), modes

    def batched(self) -> "Subposterior":
        """Return the same density for `vmap` over many points."""
        return Subposterior(self.model, self.shard, self.prior_power, is_batched=True)


def evaluate(
    density: Subposterior, points: Points
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
    """Return the log densities and scores of one shard at a batch of points."""
    arguments = density.model, density.shard, density.prior_power
    if density.model.local is not None:
        parts = [
            _evaluate_in_turn(*arguments, buffer, np.asarray(count))
            for buffer, count in buffers(np.asarray(points))
        ]
    elif is_small(density.shard):
        parts = [
            _evaluate_chunks(*arguments, buffer, np.asarray(-(-count // CHUNK_SIZE)))
            for buffer, count in buffers(np.asarray(points))
        ]
    else:
        parts = [
            _evaluate(*arguments, batch) for batch in _batches(points, _num_points(len(points)))
        ]
    log_densities, scores = zip(*parts, strict=True)
    return _concatenate(log_densities, len(points)), _concatenate(scores, len(points))


def is_small(shard: Shard) -> bool:
    """Return whether a shard fits into cache, so that compiling takes longer than evaluating it.

    One program then serves any number of points, and Hessians are differences of scores.
    """
    return shard.num_bytes <= MAX_CACHED_BYTES


# jax.jit in place of eqx.filter_jit: a call takes 0.04 ms in place of 0.16 ms, and there may be
# 100 shards.
@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _evaluate(
    model: Model, shard: Shard, prior_power: Power, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    density = Subposterior(model, shard, prior_power, len(points) > SMALL_BATCH_SIZE)
    return jax.vmap(jax.value_and_grad(density))(points)


@compiled_per_model
@partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILATION)
def _evaluate_chunks(
    model: Model,
    shard: Shard,
    prior_power: Power,
    points: Float[Array, "buffer dim"],
    num_chunks: Int[Array, ""],
) -> tuple[Float[Array, " buffer"], Float[Array, "buffer dim"]]:
    """Evaluate the first chunks of a buffer of points: one program for any number of points."""
    value_and_score = jax.vmap(jax.value_and_grad(Subposterior(model, shard, prior_power, True)))

    def add(number: Array, results: Any) -> Any:
        first = number * CHUNK_SIZE
        chunk = jax.lax.dynamic_slice_in_dim(points, first, CHUNK_SIZE)
        return jax.tree.map(
            lambda all_parts, part: jax.lax.dynamic_update_slice_in_dim(all_parts, part, first, 0),
            results,
            value_and_score(chunk),
        )

    return jax.lax.fori_loop(0, num_chunks, add, (jnp.zeros(len(points)), jnp.zeros_like(points)))


@compiled_per_model
@partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILATION)
def _evaluate_in_turn(
    model: Model,
    shard: Shard,
    prior_power: Power,
    points: Float[Array, "buffer dim"],
    num_points: Int[Array, ""],
) -> tuple[Float[Array, " buffer"], Float[Array, "buffer dim"]]:
    """Evaluate the first points of a buffer, with local parameters integrated out."""
    density = Subposterior(model, shard, prior_power)
    assert model.local is not None

    def evaluate(number: Array, carry: Any) -> Any:
        modes, values, scores = carry
        (value, modes), score = jax.value_and_grad(density.with_modes, has_aux=True)(
            points[number], modes
        )
        return modes, values.at[number].set(value), scores.at[number].set(score)

    first = model.local.start(shard), jnp.zeros(len(points)), jnp.zeros_like(points)
    return jax.lax.fori_loop(0, num_points, evaluate, first)[1:]


def log_prior_parts(
    model: Model, points: Float[np.ndarray, "point dim"]
) -> Float[np.ndarray, "point 2"]:
    """Return the log prior densities of the params at points, and the log Jacobians."""
    parts = [_log_prior_parts(model, batch) for batch in padded_batches(points)]
    return _concatenate(parts, len(points))


@compiled_per_model
@partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILATION)
def _log_prior_parts(model: Model, points: Float[Array, "point dim"]) -> Float[Array, "point 2"]:
    return jax.vmap(model.log_prior_parts_at)(points)


def log_priors(model: Model, points: Float[np.ndarray, "point dim"]) -> Float[np.ndarray, " point"]:
    """Return the log prior densities of points; no row is needed for them."""
    return evaluate_prior(model, points)[0]


def evaluate_prior(
    model: Model, points: Float[np.ndarray, "point dim"]
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
    """Return the log prior densities and their scores at points."""
    parts = [_evaluate_prior(model, batch) for batch in padded_batches(points)]
    log_densities, scores = zip(*parts, strict=True)
    return _concatenate(log_densities, len(points)), _concatenate(scores, len(points))


@compiled_per_model
@partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILATION)
def _evaluate_prior(
    model: Model, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    return jax.vmap(jax.value_and_grad(model.log_prior_at))(points)


def hessian_products(
    density: Subposterior, point: Vector, directions: Directions, is_exact: bool = False
) -> Float[np.ndarray, "direction dim"]:
    """Return the products of one shard's Hessian at a point with directions.

    Those of small shards are differences of scores, with a relative error of 1e-6 or so, unless
    `is_exact`: another program would take longer to compile than they take.
    """
    if not is_exact and is_small(density.shard) and len(directions) <= MAX_DIFFERENCES:
        products = _score_differences(density, np.asarray(point), np.asarray(directions))
        if products is not None:
            return products
    size = _num_directions(density.shard, len(directions))
    parts = [
        _hessian_products(density.model, density.shard, density.prior_power, point, batch)
        for batch in _batches(directions, size)
    ]
    return _concatenate(parts, len(directions))


def _score_differences(
    density: Subposterior, point: Float[np.ndarray, " dim"], directions: np.ndarray
) -> Float[np.ndarray, "direction dim"] | None:
    """Return products with the Hessian by central differences; None if no step is suitable.

    A step is some thousandth of the sd along its direction, which the differences tell.
    """
    sizes = np.abs(directions).max(axis=1) * len(density.shard.weights) ** 0.5
    with np.errstate(all="ignore"):
        steps = STEP_SD / sizes  # right if a row has unit information
        for _ in range(MAX_TRIALS):
            offsets = steps[:, None] * directions
            scores = evaluate(density, np.concatenate([point + offsets, point - offsets]))[1]
            forward, backward = np.split(scores, 2)
            products = (forward - backward) / (2 * steps[:, None])
            slopes = np.sqrt(np.abs(np.sum(products * directions, axis=1)))
            if not (np.isfinite(products).all() and slopes.all()):
                return None
            is_suitable = (steps * slopes > MIN_STEP_SD) & (steps * slopes < MAX_STEP_SD)
            if is_suitable.all():
                return products
            steps = np.where(is_suitable, steps, STEP_SD / slopes)
    return None


@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _hessian_products(
    model: Model,
    shard: Shard,
    prior_power: Power,
    point: Point,
    directions: Float[Array, "direction dim"],
) -> Float[Array, "direction dim"]:
    density = Subposterior(model, shard, prior_power, len(directions) > MAX_UNPADDED)
    return density.hessian_products(point, directions)


def prepare(density: Subposterior) -> None:
    """Compile ahead of time the programs for batches of points and for the whole Hessian."""
    dim = density.model.space.dim
    arguments = density.model, density.shard, density.prior_power
    is_local = density.model.local is not None
    if is_local or is_small(density.shard):
        buffer = jax.ShapeDtypeStruct((BUFFER_SIZE, dim), float)
        program = _evaluate_in_turn if is_local else _evaluate_chunks
        program.lower(*arguments, buffer, jax.ShapeDtypeStruct((), int)).compile()
        if dim <= MAX_DIFFERENCES:
            return
    else:
        _evaluate.lower(*arguments, jax.ShapeDtypeStruct((BATCH_SIZE, dim), float)).compile()
    size = _num_directions(density.shard, dim)
    point, directions = (jax.ShapeDtypeStruct(shape, float) for shape in ((dim,), (size, dim)))
    _hessian_products.lower(*arguments, point, directions).compile()


def _num_points(count: int) -> int:
    """Return the number of points per compiled call: there are three programs."""
    return BATCH_SIZE if count > SMALL_BATCH_SIZE else SMALL_BATCH_SIZE if count > 1 else 1


def _num_directions(shard: Shard, count: int) -> int:
    """Return the number of directions per compiled call: many are cut into equal parts."""
    if count <= MAX_UNPADDED:
        return count
    if count <= BATCH_SIZE:
        return BATCH_SIZE
    largest = int(
        np.clip(MAX_VALUES // block_size(shard, is_batched=True), BATCH_SIZE, MAX_DIRECTIONS)
    )
    return -(-count // -(-count // largest))


def _batches(points: Points, size: int) -> list[Any]:
    """Cut points into batches of one size, the last padded, which share one program."""
    if len(points) == size:
        return [points]
    values = np.asarray(points)  # in NumPy: JAX would compile a program for every number of points
    padding = np.repeat(values[-1:], -len(values) % size, axis=0)
    return np.split(np.concatenate([values, padding]), (len(values) + len(padding)) // size)


def padded_batches(
    points: Float[np.ndarray, "point dim"],
) -> Float[np.ndarray, "batch 32 dim"]:
    """Return points in batches; the last one is filled up with copies of the last point."""
    padding = np.repeat(points[-1:], -len(points) % BATCH_SIZE, axis=0)
    return np.concatenate([points, padding]).reshape(-1, BATCH_SIZE, points.shape[1])


def buffers(points: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Yield buffers of points, the last padded with its last point, and their number of points."""
    for first in range(0, len(points), BUFFER_SIZE):
        part = points[first : first + BUFFER_SIZE]
        padding = np.repeat(part[-1:], BUFFER_SIZE - len(part), axis=0)
        yield np.concatenate([part, padding]), len(part)


def _concatenate(parts: Sequence[Array], count: int) -> np.ndarray:
    """Return the first `count` entries of the parts together."""
    return np.concatenate(parts)[:count] if len(parts) > 1 else np.asarray(parts[0])[:count]
