"""Results in ArviZ's form: an `xarray.DataTree` with groups such as `posterior`."""

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.labels import COORDS_GROUP, DIMS_GROUP, Dims, Labels

if TYPE_CHECKING:
    from xarray import DataTree

RECORDED_PACKAGES = ("vcmc", "jax", "numpyro", "blackjax", "numpy", "xarray", "arviz-base")

RENAMED = "renamed"  # the attribute with the model's names, by names in the tree, where they differ
SIZES_GROUP, NUM_ROWS = "group_sizes", "num_rows"  # the array of the groups' numbers of rows
DEFAULT_DIMS = ["shard", "chain", "draw"]
# Leading dimensions of the groups whose arrays do not have the default ones.
GROUP_DIMS: dict[str, list[str]] = {
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
    "q05_error": [],
    "q05_error_se": [],
    "q95_error": [],
    "q95_error_se": [],
    "local_mean": [],
    "local_sd": [],
    "local_q05": [],
    "local_q50": [],
    "local_q95": [],
    SIZES_GROUP: [],
    "updates": ["update"],
    "update_mean": ["update"],
    "update_sd": ["update"],
    "shard_batches": ["shard"],
    "draw_modes": ["chain", "draw"],
    "modes": ["mode"],
    "mode_weights": ["mode"],
    "mode_regions": ["mode"],
}


def posterior_draws(tree: "DataTree") -> dict[str, np.ndarray]:
    """Return the draws of a result by name, with its chains concatenated.

    The names are those of the model: NumPyro's site `net/b` is `net.b` in the tree, and `net/b`
    here.
    """
    renamed = json.loads(tree.attrs.get(RENAMED, "{}"))
    return {renamed.get(name, name): array for name, array in draws_by_parameter(tree).items()}


def draws_by_parameter(tree: "DataTree") -> dict[str, np.ndarray]:
    """Return the draws of a result by their names in the tree, with its chains concatenated."""
    posterior = tree["posterior"].to_dataset().transpose("chain", "draw", ...)
    arrays = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


def renamed_attribute(renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the attribute that records names that differ from those of the model, if any."""
    return {RENAMED: json.dumps(dict(renamed))} if renamed else {}


def kept_attribute(draws: Any) -> dict[str, str]:
    """Return this attribute of draws, if they are a tree that has it."""
    attributes = getattr(draws, "attrs", {})
    return {RENAMED: attributes[RENAMED]} if RENAMED in attributes else {}


def make_tree(groups: Mapping[str, Any], settings: Mapping[str, Any]) -> "DataTree":
    """Return a DataTree of groups of arrays; its attributes are the settings, date and versions.

    A group is a mapping from names to arrays, whose leading axes are (shard, chain, draw) or
    those of `GROUP_DIMS`. The groups `dims` and `coords` label the other axes.
    """
    return build_tree(
        groups,
        {
            **settings,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "versions": [f"{package} {version(package)}" for package in RECORDED_PACKAGES],
        },
    )


def build_tree(groups: Mapping[str, Any], attributes: Mapping[str, Any]) -> "DataTree":
    """Return a DataTree of groups of arrays with the given attributes."""
    from xarray import DataTree  # slow to import

    tree = DataTree.from_dict(_datasets(groups, Labels.from_groups(groups)))
    tree.attrs = dict(attributes)
    return tree


def add_groups(
    tree: "DataTree",
    groups: Mapping[str, Any],
    settings: Mapping[str, Any],
    drop: tuple[str, ...] = (),
) -> "DataTree":
    """Return a tree with groups and attributes added or replaced, and those in `drop` removed."""
    from xarray import DataTree

    children = {
        name: child.to_dataset() for name, child in tree.children.items() if name not in drop
    }
    old, new = tree_labels(tree), Labels.from_groups(groups)
    labels = Labels(old.dims | new.dims, old.coords | new.coords)
    new_tree = DataTree.from_dict(children | _datasets(groups, labels))
    kept = {name: value for name, value in tree.attrs.items() if name not in drop}
    new_tree.attrs = {**kept, **settings}
    return new_tree


def tree_labels(tree: "DataTree") -> Labels:
    """Return the dims and coords of a tree's parameters."""
    dims: dict[str, Dims] = {}
    coords: dict[str, np.ndarray] = {}
    for group in ("subposterior", "posterior"):
        if group in tree.children:
            labels = Labels.of_dataset(
                tree[group].to_dataset(), GROUP_DIMS.get(group, DEFAULT_DIMS)
            )
            dims |= labels.dims
            coords |= labels.coords
    return Labels(dims, coords)


def text_list(tree: "DataTree", name: str) -> list[str]:
    """Return a list of texts among a tree's attributes; files turn a list of one into a text."""
    texts = tree.attrs.get(name, [])
    return [texts] if isinstance(texts, str) else list(texts)


def _datasets(groups: Mapping[str, Any], labels: Labels) -> dict[str, Any]:
    return {
        group: _dataset(arrays, GROUP_DIMS.get(group, DEFAULT_DIMS), labels)
        for group, arrays in groups.items()
        if group not in (DIMS_GROUP, COORDS_GROUP)
    }


def _dataset(arrays: Mapping[str, Any], leading: list[str], labels: Labels) -> Any:
    from arviz_base import dict_to_dataset

    shapes = {name: np.shape(array)[len(leading) :] for name, array in arrays.items()}
    dims: dict[Any, Any] = dict(labels.names(shapes, leading))
    used = {dim for axes in dims.values() for dim in axes}
    coords: dict[Any, Any] = {dim: labels.coords[dim] for dim in labels.coords if dim in used}
    return dict_to_dataset(
        dict(arrays), sample_dims=leading, dims=dims, coords=coords, check_conventions=False
    )
