"""Batches of points as params, and back: the draws of a space in both forms."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import Derived
from ..space import Product


def to_params(
    space: Product, points: Float[Array, "*batch dim"], derived: Derived | None = None
) -> dict[str, np.ndarray]:
    """Params (and derived quantities) of a batch of points, as arrays with the batch's axes first."""
    batch = points.shape[:-1]
    flat = _params(space, derived, jnp.reshape(points, (-1, points.shape[-1])))
    names = [
        *space,
        *(name for name in flat if name not in space),
    ]  # compiled functions sort the names
    return {name: np.asarray(flat[name]).reshape(*batch, *flat[name].shape[1:]) for name in names}


@partial(jax.jit, static_argnums=(0, 1))
def _params(
    space: Product, derived: Derived | None, points: Float[Array, "draw dim"]
) -> dict[str, Array]:
    def one(point: Float[Array, " dim"]) -> dict[str, Array]:
        params = space.constrain(point)
        return {**params, **(derived(params) if derived else {})}

    return jax.vmap(one)(points)


def to_points(space: Product, draws: Mapping[str, np.ndarray]) -> Float[Array, "draw dim"]:
    """Points of draws given as params, one draw along the first axis."""
    arrays = {name: np.asarray(draws[name], float) for name in space}
    count = len(next(iter(arrays.values())))
    if all(inside.is_real for inside in space.values()):
        return jnp.asarray(
            np.concatenate([array.reshape(count, -1) for array in arrays.values()], axis=1)
        )
    size = (
        1 << (count - 1).bit_length()
    )  # so that few sizes, each of which is compiled, serve shards of all sizes
    filled = {name: np.resize(array, (size, *array.shape[1:])) for name, array in arrays.items()}
    return _points(space, filled)[:count]


@partial(jax.jit, static_argnums=0)
def _points(space: Product, arrays: dict[str, Array]) -> Float[Array, "draw dim"]:
    return jax.vmap(space.unconstrain)(arrays)


def by_coordinate(space: Product, values: Float[Array, "shard dim"]) -> dict[str, np.ndarray]:
    """Values that belong to real coordinates, by parameter."""
    return {
        name: np.asarray(values)[:, space.indices(name)].reshape(-1, *inside.point_shape)
        for name, inside in space.items()
    }
