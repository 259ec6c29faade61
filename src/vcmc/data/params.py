"""Convert batches of points to params and back."""

from collections.abc import Mapping
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float

from .._runtime import compiled_per_model
from ..model import Derived
from ..space import Product, check_names


def to_params(
    space: Product, points: Float[Array | np.ndarray, "*batch dim"], derived: Derived | None = None
) -> dict[str, np.ndarray]:
    """Return the params (and derived quantities) of a batch of points, batch axes first."""
    batch = points.shape[:-1]
    if derived is None and all(part.is_real for part in space.values()):
        # in NumPy: JAX would compile a program for every number of points
        ends = np.cumsum([part.dim for part in space.values()])[:-1]
        parts = np.split(np.asarray(points), ends, axis=-1)
        return {
            name: np.ascontiguousarray(values).reshape(*batch, *part.shape)
            for (name, part), values in zip(space.items(), parts, strict=True)
        }
    flat = _params(space, derived, points.reshape(-1, points.shape[-1]))
    # in the order of the space: compiled functions sort names
    names = [*space, *(name for name in flat if name not in space)]
    return {name: np.asarray(flat[name]).reshape(*batch, *flat[name].shape[1:]) for name in names}


def check_derived(space: Product, derived: Derived | None) -> None:
    """Refuse derived quantities that cannot be computed or reported, without computing them."""
    if derived is None:
        return
    try:
        values = jax.eval_shape(
            lambda point: derived(space.constrain(point)), jax.ShapeDtypeStruct((space.dim,), float)
        )
    except Exception as error:  # of the user's function
        raise ValueError(
            f"derived fails on the params {list(space)} ({type(error).__name__}: {error}). It must "
            "map params to named arrays, in JAX."
        ) from error
    if not isinstance(values, Mapping):
        raise ValueError(
            f"derived must return a mapping from names to arrays; got {type(values).__name__}."
        )
    if repeated := [name for name in values if name in space]:
        raise ValueError(
            f"derived returns {repeated}, which are parameters. Give them other names."
        )
    shapes = {name: part.shape for name, part in space.items()}
    check_names(shapes | {name: value.shape for name, value in values.items()})


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1))
def _params(
    space: Product, derived: Derived | None, points: Float[Array, "draw dim"]
) -> dict[str, Array]:
    def params_of(point: Float[Array, " dim"]) -> dict[str, Array]:
        params = space.constrain(point)
        return {**params, **(derived(params) if derived else {})}

    return jax.vmap(params_of)(points)


def to_points(space: Product, draws: Mapping[str, np.ndarray]) -> Float[Array, "draw dim"]:
    """Return the points of draws given as params, whose first axis is the draw."""
    arrays = {name: np.asarray(draws[name], float) for name in space}
    count = len(next(iter(arrays.values())))
    if all(part.is_real for part in space.values()):
        return jax.device_put(
            np.concatenate([array.reshape(count, -1) for array in arrays.values()], axis=1)
        )
    size = 1 << (count - 1).bit_length()  # a power of two: few sizes, each compiled once
    resized = {name: np.resize(array, (size, *array.shape[1:])) for name, array in arrays.items()}
    return _points(space, resized)[:count]


@partial(jax.jit, static_argnums=0)
def _points(space: Product, arrays: dict[str, Array]) -> Float[Array, "draw dim"]:
    return jax.vmap(space.unconstrain)(arrays)


def by_coordinate(space: Product, values: Float[Array, "shard dim"]) -> dict[str, np.ndarray]:
    """Return one value per real coordinate as arrays by parameter."""
    return {
        name: np.asarray(values)[:, space.indices(name)].reshape(-1, *part.point_shape)
        for name, part in space.items()
    }
