r"""The log density of one shard at batches of points: values, scores and Hessian products.

$$\ell_k(u) = \sum_{n \in k} \log p(x_n \mid T(u))
  + \tau \, \bigl[\log p(T(u)) + \log |\det J_T(u)|\bigr].$$
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._runtime import compiled_per_model
from .data.shard import Shard
from .model import Model, block_size
from .space import Point, Scalar

BATCH_SIZE = 32  # points or directions per compiled call: each holds some numbers for every row
MAX_UNPADDED = 8  # points or directions; batches of at most this size are not padded
MAX_DIRECTIONS = 100  # directions per compiled call: matrix products are faster if large
MAX_VALUES = 2**22  # rows times directions per compiled call, to limit memory


class Subposterior(eqx.Module):
    """The log density of one shard, with the prior raised to a power.

    `is_batched` says that it is called under `vmap` with many points.
    """

    model: Model = eqx.field(static=True)
    shard: Shard
    prior_power: Scalar
    is_batched: bool = eqx.field(static=True, default=False)

    def __call__(self, point: Point) -> Scalar:
        log_likelihood = self.model.log_likelihood_at(point, self.shard, self.is_batched)
        return log_likelihood + self.prior_power * self.model.log_prior_at(point)

    def batched(self) -> "Subposterior":
        """Return the same density for `vmap` over many points."""
        return Subposterior(self.model, self.shard, self.prior_power, is_batched=True)


def evaluate(
    density: Subposterior, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    """Return the log densities and scores of one shard at a batch of points."""
    parts = [
        _evaluate(density.model, density.shard, density.prior_power, batch)
        for batch in _batches(points)
    ]
    log_densities, scores = zip(*parts, strict=True)
    return _concatenate(log_densities, len(points)), _concatenate(scores, len(points))


# jax.jit in place of eqx.filter_jit: a call takes 0.04 ms in place of 0.16 ms, and there may be
# 100 shards.
@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _evaluate(
    model: Model, shard: Shard, prior_power: Scalar, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    density = Subposterior(model, shard, prior_power, len(points) > MAX_UNPADDED)
    return jax.vmap(jax.value_and_grad(density))(points)


def log_priors(model: Model, points: Float[np.ndarray, "point dim"]) -> Float[np.ndarray, " point"]:
    """Return the log prior densities of points; no row is needed for them."""
    parts = [_log_priors(model, jnp.asarray(batch)) for batch in _batches(jnp.asarray(points))]
    return np.asarray(_concatenate(parts, len(points)))


@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _log_priors(model: Model, points: Float[Array, "point dim"]) -> Float[Array, " point"]:
    return jax.vmap(model.log_prior_at)(points)


def hessian_products(
    density: Subposterior, point: Point, directions: Float[Array, "direction dim"]
) -> Float[Array, "direction dim"]:
    """Return the products of one shard's Hessian at a point with directions."""
    size = _num_directions(density.shard, len(directions))
    parts = [
        _hessian_products(density.model, density.shard, density.prior_power, point, batch)
        for batch in _batches(directions, size)
    ]
    return _concatenate(parts, len(directions))


@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _hessian_products(
    model: Model,
    shard: Shard,
    prior_power: Scalar,
    point: Point,
    directions: Float[Array, "direction dim"],
) -> Float[Array, "direction dim"]:
    score = jax.grad(Subposterior(model, shard, prior_power, len(directions) > MAX_UNPADDED))
    return jax.vmap(lambda direction: jax.jvp(score, (point,), (direction,))[1])(directions)


def prepare(density: Subposterior) -> None:
    """Compile ahead of time the programs for batches of points and for the whole Hessian."""
    dim = density.model.space.dim
    arguments = density.model, density.shard, density.prior_power
    _evaluate.lower(*arguments, jax.ShapeDtypeStruct((BATCH_SIZE, dim), float)).compile()
    size = dim if dim <= MAX_UNPADDED else _num_directions(density.shard, dim)
    point, directions = (jax.ShapeDtypeStruct(shape, float) for shape in ((dim,), (size, dim)))
    _hessian_products.lower(*arguments, point, directions).compile()


def _num_directions(shard: Shard, count: int) -> int:
    """Return the number of directions per compiled call: many are cut into equal parts."""
    if count <= BATCH_SIZE:
        return BATCH_SIZE
    largest = int(
        np.clip(MAX_VALUES // block_size(shard, is_batched=True), BATCH_SIZE, MAX_DIRECTIONS)
    )
    return -(-count // -(-count // largest))


def _batches(points: Float[Array, "point dim"], size: int = BATCH_SIZE) -> list[Any]:
    """Cut points into batches of one size, the last padded, which share one program."""
    if len(points) <= MAX_UNPADDED or len(points) == size:
        return [points]
    values = np.asarray(points)  # in NumPy: JAX would compile a program for every number of points
    padding = np.repeat(values[-1:], -len(values) % size, axis=0)
    return np.split(np.concatenate([values, padding]), (len(values) + len(padding)) // size)


def _concatenate(parts: Sequence[Array], count: int) -> Array:
    """Return the first `count` entries of the parts together."""
    is_whole = len(parts) == 1 and len(parts[0]) == count
    return parts[0] if is_whole else jnp.asarray(np.concatenate(parts)[:count])
