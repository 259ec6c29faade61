"""The verb `load`: read the result of a run directory, or the draws that are there so far."""

from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from ..data.params import to_params
from ..data.space_description import describe_space
from ..errors import StoreError
from ..samplers.base import Chain, group_by_walker
from .blocks import join_blocks
from .store import Store
from .tree import build_tree, make_tree

if TYPE_CHECKING:
    from xarray import DataTree

MAX_NAMED_SHARDS = 10  # in a warning
KEPT_SETTINGS = ("seed", "num_draws", "thin", "prior", "model", "sampler")


def load(store: str | Path) -> "DataTree":
    """Return the result of a run that was made with `infer(..., store=...)`.

    Of a run that did not finish, return the draws of the shards that are complete: the attribute
    `sound_shards` says which, and `vcmc.combine` can combine them. To finish the run, repeat the
    call of `infer`.

    Args:
        store: the run directory.
    """
    folder = Path(store)
    if not folder.is_dir():
        raise StoreError(f"there is no run directory {folder.absolute()}.")
    run = Store(folder)
    if result := run.load_tree():
        return build_tree(*result)
    settings, space = run.settings(), run.space()
    num_shards = settings["num_shards"]
    shards = _complete_shards(run, num_shards, settings["num_draws"])
    if not shards:
        raise StoreError(
            f"no shard of {run.folder} is complete yet. To resume, repeat the call of infer."
        )
    points = np.stack([[chain.points for chain in chains] for chains in shards.values()])
    names = next(iter(shards.values()))[0].stats
    stats = {
        name: np.stack([[chain.stats[name] for chain in chains] for chains in shards.values()])
        for name in names
    }
    missing = [shard for shard in range(num_shards) if shard not in shards]
    note = (
        f"the run did not finish: draws of {len(missing)} of {num_shards} shards are missing "
        f"({missing[:MAX_NAMED_SHARDS]})."
    )
    groups = {"subposterior": to_params(space, jnp.asarray(points)), "sample_stats": stats}
    attributes = {name: settings[name] for name in KEPT_SETTINGS} | {
        "num_shards": num_shards,
        "sound_shards": list(shards),
        "space": describe_space(space),
        "warnings": [note] if missing else [],
    }
    return make_tree(groups, attributes)


def _complete_shards(run: Store, num_shards: int, num_draws: int) -> dict[int, list[Chain]]:
    shards = {}
    for shard in range(num_shards):
        chains = [group_by_walker(join_blocks(folder.blocks())) for folder in run.chains(shard)]
        if chains and all(len(chain.points) == num_draws for chain in chains):
            shards[shard] = chains
    return shards
