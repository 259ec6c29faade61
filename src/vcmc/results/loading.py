"""Read a run directory: its result, or the draws that are there."""

from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from ..data.params import to_params
from ..errors import StoreError
from ..samplers.base import split_walkers
from .blocks import join_blocks
from .store import Store
from .tree import make_tree, tree_of

if TYPE_CHECKING:
    from xarray import DataTree


def load(store: str | Path) -> "DataTree":
    """The result of a run that was made with `infer(..., store=...)`.

    Of a run that was not finished, the draws of the shards that are complete: its attribute `sound_shards` says which, and
    `vcmc.combine` can combine them. To finish the run, make the same call of `infer` again.

    Args:
        store: the run directory.
    """
    folder = Path(store)
    if not folder.is_dir():
        raise StoreError(f"there is no run directory {folder.absolute()}.")
    kept = Store(folder)
    if found := kept.load_tree():
        return tree_of(*found)
    settings, space = kept.settings(), kept.space()
    num_shards, num_draws = settings["num_shards"], settings["num_draws"]
    shards = {}
    for shard in range(num_shards):
        chains = [split_walkers(join_blocks(folder.blocks())) for folder in kept.chains(shard)]
        if chains and all(len(chain.points) == num_draws for chain in chains):
            shards[shard] = chains
    if not shards:
        raise StoreError(
            f"no shard of {kept.folder} is complete yet. To go on, make the same call of infer again."
        )
    sound = sorted(shards)
    draws = np.stack([[chain.points for chain in shards[shard]] for shard in sound])
    stats = {
        name: np.stack([[chain.stats[name] for chain in shards[shard]] for shard in sound])
        for name in shards[sound[0]][0].stats
    }
    known = {
        name: settings[name] for name in ("seed", "num_draws", "thin", "prior", "model", "sampler")
    }
    missing = [shard for shard in range(num_shards) if shard not in shards]
    note = f"the run was not finished: draws of {len(missing)} of {num_shards} shards are missing ({missing[:10]})."
    groups = {"subposterior": to_params(space, jnp.asarray(draws)), "sample_stats": stats}
    return make_tree(
        groups,
        known
        | {"num_shards": num_shards, "sound_shards": sound, "warnings": [note] if missing else []},
    )
