"""The groups of a tree that tell its history: estimates by update, batches of shards."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model import Model
from ..results.tree import draws_by_parameter

if TYPE_CHECKING:
    from xarray import DataTree

UPDATES, MEAN, SD, BATCHES = "updates", "update_mean", "update_sd", "shard_batches"


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def update_groups(
    before: "DataTree | None",
    posterior: Mapping[str, np.ndarray],
    model: Model,
    entry: Mapping[str, Any],
    batches: Sequence[int],
) -> dict[str, dict[str, np.ndarray]]:
    """Return the groups of a result after an update.

    Args:
        before: the result before, which has no history if it was the first; None if its estimates
            are not to be kept.
        posterior: the new draws, axes (chain, draw, …).
        model: the model.
        entry: number of rows and shards, time, verdict and name of the update.
        batches: for every shard, the number of the update that brought its rows.
    """
    means = {name: np.mean(posterior[name], axis=(0, 1))[None] for name in model.space}
    sds = {name: np.std(posterior[name], axis=(0, 1))[None] for name in model.space}
    entries = {name: np.array([value]) for name, value in entry.items()}
    if before is not None:
        old = history_of(before, model)
        entries = {name: np.concatenate([old[UPDATES][name], entries[name]]) for name in entries}
        means = {name: np.concatenate([old[MEAN][name], means[name]]) for name in means}
        sds = {name: np.concatenate([old[SD][name], sds[name]]) for name in sds}
    return {
        UPDATES: entries,
        MEAN: means,
        SD: sds,
        BATCHES: {"batch": np.asarray(batches, int)},
    }


def history_of(tree: "DataTree", model: Model) -> dict[str, dict[str, np.ndarray]]:
    """Return the history of a result; one that was never updated has one entry."""
    if UPDATES in tree.children:
        return {
            group: {str(name): tree[group][name].to_numpy() for name in tree[group].data_vars}
            for group in (UPDATES, MEAN, SD)
        }
    draws = draws_by_parameter(tree)
    attributes = tree.attrs
    sizes = np.atleast_1d(attributes.get("shard_sizes", 0))
    entry = {
        "num_rows": int(np.sum(sizes)),
        "num_shards": int(attributes["num_shards"]),
        "time": str(attributes.get("created_at", "")),
        "verdict": str(attributes.get("verdict", "unknown")),
        "name": "0",
    }
    return {
        UPDATES: {name: np.array([value]) for name, value in entry.items()},
        MEAN: {name: draws[name].mean(axis=0)[None] for name in model.space},
        SD: {name: draws[name].std(axis=0)[None] for name in model.space},
    }
