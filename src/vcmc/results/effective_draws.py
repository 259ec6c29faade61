"""Effective draws of a result: those of the posterior's chains, or of the shards' where fewer."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..diagnostics.sampling_error import DrawSource
from ..linalg.pairing import shard_pairs
from .quantities import parameter_array

if TYPE_CHECKING:
    from xarray import DataTree


def stored_source(tree: "DataTree") -> DrawSource | None:
    """Return where the draws of a tree come from, if they were combined from those of shards."""
    if "paired" not in tree.attrs or "subposterior_ess" not in tree.children:
        return None
    if int(tree.attrs["num_shards"]) == 1 or "subposterior" not in tree.children:
        return None
    if "bent_ess" in tree.attrs:
        return DrawSource(float(tree.attrs["bent_ess"]))
    posterior, ess = tree["posterior"].sizes, tree["subposterior_ess"]
    num_shards, num_draws = int(tree.attrs["num_shards"]), posterior["chain"] * posterior["draw"]
    counts = tree.attrs.get("draw_counts")
    if counts is None:
        sizes = tree["subposterior"].sizes
        counts = np.full(num_shards, sizes["chain"] * sizes["draw"])
    by_shard = {str(name): values.to_numpy() for name, values in ess.data_vars.items()}
    pairs = shard_pairs(counts, num_draws, int(tree.attrs["seed"]))
    is_paired, uses_target = (bool(tree.attrs[name]) for name in ("paired", "uses_target"))
    return DrawSource.of_shards(pairs if is_paired else None, by_shard, counts, uses_target)


def max_effective_draws(tree: "DataTree") -> float:
    """Return the most effective draws that a mean has, where means rest on draws of shards."""
    source = stored_source(tree)
    return np.inf if source is None or source.moment_draws is None else source.moment_draws


def effective_draws(
    draws: Float[np.ndarray, "chain draw *axes"], max_ess: float
) -> Float[np.ndarray, "*axes"]:
    """Return the effective draws of every element; a constant has none (NaN)."""
    num_draws = draws.shape[0] * draws.shape[1]
    ess = np.minimum(convergence.ess(draws[None])[0], min(num_draws, max_ess))
    return np.where(draws.std(axis=(0, 1)) > 0, ess, np.nan)


def effective_draws_of(tree: "DataTree", names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the effective draws of all elements of some parameters, where they have draws."""
    if "posterior" not in tree.children:
        return {}
    max_ess = max_effective_draws(tree)
    return {
        name: effective_draws(np.asarray(parameter_array(tree, name).to_numpy(), float), max_ess)
        for name in names
        if name in tree["posterior"].data_vars
    }
