r"""The log density of one shard, evaluated at batches of points: values, scores and Hessian products.

$$\ell_k(u) = \sum_{n \in k} \log p(x_n \mid T(u)) + \tau \, \bigl[\log p(T(u)) + \log |\det J_T(u)|\bigr].$$
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.shard import Shard
from .model import Model, block_size
from .space import Point, Scalar

# Points or directions at once, as some numbers for every row and point are held; few are not filled up. Of many directions more are taken at once,
# as products of matrices are faster then, if rows are few enough.
BATCH, FEW, MOST, MAX_HELD = 32, 8, 100, 2**22


class Subposterior(eqx.Module):
    """The log density of one shard, with the prior raised to a power; `many` says that it is called under `vmap`."""

    model: Model = eqx.field(static=True)
    shard: Shard
    prior_power: Scalar
    many: bool = eqx.field(static=True, default=False)

    def __call__(self, point: Point) -> Scalar:
        log_likelihood = self.model.log_likelihood_at(point, self.shard, self.many)
        return log_likelihood + self.prior_power * self.model.log_prior_at(point)

    def of_many(self) -> "Subposterior":
        """The same for `vmap` over many points."""
        return Subposterior(self.model, self.shard, self.prior_power, many=True)


def evaluate(
    density: Subposterior, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    """Log densities and scores of one shard at a batch of points."""
    parts = [
        _evaluate(density.model, density.shard, density.prior_power, part)
        for part in _batches(points)
    ]
    log_densities, scores = zip(*parts, strict=True)
    return _joined(log_densities, len(points)), _joined(scores, len(points))


# JAX's own jit, not Equinox's: it takes 0.04 ms to call where the other takes 0.16 ms, and there may be 100 shards.
@partial(jax.jit, static_argnums=0)
def _evaluate(
    model: Model, shard: Shard, prior_power: Scalar, points: Float[Array, "point dim"]
) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
    return jax.vmap(jax.value_and_grad(Subposterior(model, shard, prior_power, len(points) > FEW)))(
        points
    )


def hessian_products(
    density: Subposterior, point: Point, directions: Float[Array, "direction dim"]
) -> Float[Array, "direction dim"]:
    """How one shard's score at a point changes along directions: products of its Hessian with them."""
    size = _num_directions(density.shard, len(directions))
    parts = [
        _hessian_products(density.model, density.shard, density.prior_power, point, part)
        for part in _batches(directions, size)
    ]
    return _joined(parts, len(directions))


@partial(jax.jit, static_argnums=0)
def _hessian_products(
    model: Model,
    shard: Shard,
    prior_power: Scalar,
    point: Point,
    directions: Float[Array, "direction dim"],
) -> Float[Array, "direction dim"]:
    score = jax.grad(Subposterior(model, shard, prior_power, len(directions) > FEW))
    return jax.vmap(lambda direction: jax.jvp(score, (point,), (direction,))[1])(directions)


def prepare(density: Subposterior) -> None:
    """Compile what evaluates a density at many points, and what makes its Hessian, so that it is ready when it is needed."""
    dim = density.model.space.dim
    given = density.model, density.shard, density.prior_power
    _evaluate.lower(*given, jax.ShapeDtypeStruct((BATCH, dim), float)).compile()
    size = dim if dim <= FEW else _num_directions(density.shard, dim)
    point, directions = (jax.ShapeDtypeStruct(shape, float) for shape in ((dim,), (size, dim)))
    _hessian_products.lower(*given, point, directions).compile()


def _num_directions(shard: Shard, count: int) -> int:
    """How many directions are taken at once: of many, equal parts."""
    if count <= BATCH:
        return BATCH
    most = int(np.clip(MAX_HELD // block_size(shard, many=True), BATCH, MOST))
    return -(-count // -(-count // most))


def _batches(points: Float[Array, "point dim"], size: int = BATCH) -> list[Any]:
    """Points in batches of one size, the last filled up, so that all share one program and its memory."""
    if len(points) <= FEW or len(points) == size:
        return [points]
    values = np.asarray(
        points
    )  # cut in NumPy, as JAX would compile a program for every number of points
    filling = np.repeat(values[-1:], -len(values) % size, axis=0)
    return np.split(np.concatenate([values, filling]), (len(values) + len(filling)) // size)


def _joined(parts: Sequence[Array], count: int) -> Array:
    whole = len(parts) == 1 and len(parts[0]) == count
    return parts[0] if whole else jnp.asarray(np.concatenate(parts)[:count])
