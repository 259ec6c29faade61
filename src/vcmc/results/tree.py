"""Results as ArviZ knows them: an `xarray.DataTree` with groups `posterior` and `subposterior`."""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

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


def posterior_draws(tree: "DataTree") -> dict[str, np.ndarray]:
    """A result's draws by name, all chains one after the other."""
    posterior = tree["posterior"].to_dataset().transpose("chain", "draw", ...)
    arrays = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


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
    tree: "DataTree",
    groups: Mapping[str, Any],
    settings: Mapping[str, Any],
    drop: tuple[str, ...] = (),
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
            dict(arrays),
            sample_dims=AXES.get(group, ["shard", "chain", "draw"]),
            check_conventions=False,
        )
        for group, arrays in groups.items()
    }
