"""Results as ArviZ knows them: an `xarray.DataTree` with groups `posterior` and `subposterior`."""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .model import Derived
from .space import Product

if TYPE_CHECKING:
    from xarray import DataTree

PACKAGES = ("vcmc", "jax", "numpyro", "blackjax", "numpy", "xarray", "arviz-base")

AXES = {
    "posterior": ["chain", "draw"],
    "sample_seconds": ["shard", "chain"],
    "subposterior_rhat": ["shard"],
    "subposterior_ess": ["shard"],
    "weights": ["shard"],
    "optimization": ["iteration"],
    "mean_error": [],
    "mean_error_se": [],
    "sd_error": [],
    "sd_error_se": [],
}


def to_params(
    space: Product, points: Float[Array, "*batch dim"], derived: Derived | None = None
) -> dict[str, np.ndarray]:
    """Params (and derived quantities) of a batch of points, as arrays with the batch's axes first."""
    batch = points.shape[:-1]
    flat = _params(space, derived, jnp.reshape(points, (-1, points.shape[-1])))
    names = [*space, *(name for name in flat if name not in space)]  # compiled functions sort the names
    return {name: np.asarray(flat[name]).reshape(*batch, *flat[name].shape[1:]) for name in names}


@partial(jax.jit, static_argnums=(0, 1))
def _params(space: Product, derived: Derived | None, points: Float[Array, "draw dim"]) -> dict[str, Array]:
    def one(point: Float[Array, " dim"]) -> dict[str, Array]:
        params = space.constrain(point)
        return {**params, **(derived(params) if derived else {})}

    return jax.vmap(one)(points)


def to_points(space: Product, draws: Mapping[str, np.ndarray]) -> Float[Array, "draw dim"]:
    """Points of draws given as params, one draw along the first axis."""
    arrays = {name: np.asarray(draws[name], float) for name in space}
    count = len(next(iter(arrays.values())))
    if all(inside.is_real for inside in space.values()):
        return jnp.asarray(np.concatenate([array.reshape(count, -1) for array in arrays.values()], axis=1))
    size = (
        1 << (count - 1).bit_length()
    )  # so that few sizes, each of which is compiled, serve shards of all sizes
    filled = {name: np.resize(array, (size, *array.shape[1:])) for name, array in arrays.items()}
    return _points(space, filled)[:count]


@partial(jax.jit, static_argnums=0)
def _points(space: Product, arrays: dict[str, Array]) -> Float[Array, "draw dim"]:
    return jax.vmap(space.unconstrain)(arrays)


def posterior_draws(tree: "DataTree") -> dict[str, np.ndarray]:
    """A result's draws by name, all chains one after the other."""
    posterior = tree["posterior"].to_dataset().transpose("chain", "draw", ...)
    arrays = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


def by_coordinate(space: Product, values: Float[Array, "shard dim"]) -> dict[str, np.ndarray]:
    """Values that belong to real coordinates, by parameter."""
    return {
        name: np.asarray(values)[:, space.indices(name)].reshape(-1, *inside.point_shape)
        for name, inside in space.items()
    }


def make_tree(groups: Mapping[str, Any], settings: Mapping[str, Any]) -> "DataTree":
    """A DataTree of groups of arrays, with the settings and the versions as attributes.

    A group is a mapping of arrays whose first axes are those of `AXES`, or (shard, chain, draw).
    """
    return tree_of(
        groups,
        {
            **settings,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "versions": [f"{package} {version(package)}" for package in PACKAGES],
        },
    )


def tree_of(groups: Mapping[str, Any], attributes: Mapping[str, Any]) -> "DataTree":
    """A DataTree of groups of arrays, with attributes as they are."""
    from xarray import DataTree  # here, not above: it takes long to import

    tree = DataTree.from_dict(_datasets(groups))
    tree.attrs = dict(attributes)
    return tree


def add_groups(
    tree: "DataTree", groups: Mapping[str, Any], settings: Mapping[str, Any], drop: tuple[str, ...] = ()
) -> "DataTree":
    """A tree with further or other groups and attributes, and without those of `drop`."""
    from xarray import DataTree

    kept = {name: child.to_dataset() for name, child in tree.children.items() if name not in drop}
    added = DataTree.from_dict(kept | _datasets(groups))
    added.attrs = {**tree.attrs, **settings}
    return added


def _datasets(groups: Mapping[str, Any]) -> dict[str, Any]:
    from arviz_base import dict_to_dataset

    return {
        group: dict_to_dataset(
            dict(arrays), sample_dims=AXES.get(group, ["shard", "chain", "draw"]), check_conventions=False
        )
        for group, arrays in groups.items()
    }
