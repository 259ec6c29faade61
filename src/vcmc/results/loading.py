"""The verb `load`: read the result of a run directory, or the draws that are there so far."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..data.params import to_params
from ..data.space_description import describe_space, space_from_description
from ..errors import StoreError
from ..model import Model
from ..samplers.base import Chain, group_by_walker
from ..space import Product
from .blocks import join_blocks
from .states import current_run
from .store import SETTINGS, Store
from .tree import build_tree, make_tree

if TYPE_CHECKING:
    from xarray import DataTree

MAX_NAMED_SHARDS = 10  # in a warning
KEPT_SETTINGS = ("seed", "shard_draws", "thin", "prior", "model", "sampler")


def load(store: str | Path, model: Model | None = None) -> "DataTree":
    """Return the result of a run that was made with `infer(..., store=...)`.

    Of a run that did not finish, return the draws of the shards that are complete: the attribute
    `sound_shards` says which, and `vcmc.combine` can combine them. To finish the run, repeat the
    call of `infer`.

    All files of a run directory are plain data: loading one from somebody else runs no code.

    Args:
        store: the run directory.
        model: the model, needed for a run that did not finish if the space of a parameter cannot
            be described, e.g. because its bounds depend on other parameters.
    """
    folder = Path(store)
    if not folder.is_dir():
        raise StoreError(f"there is no run directory {folder.absolute()}.")
    run = current_run(folder)
    settings = run.settings() if run.folder == Store(folder).folder else {}
    if settings is None:
        raise StoreError(f"{run.folder} is not a run directory: it has no {SETTINGS}.")
    if result := run.load_tree():
        groups, attributes, _ = result
        return build_tree(groups, attributes)
    space = model.space if model else _stored_space(run, settings)
    num_shards = settings["num_shards"]
    shards = _complete_shards(run, settings)
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
    groups |= model.labels.groups if model else run.labels()
    attributes = {name: settings[name] for name in KEPT_SETTINGS} | {
        "num_shards": num_shards,
        "sound_shards": list(shards),
        "space": describe_space(space),
        "warnings": [note] if missing else [],
    }
    return make_tree(groups, attributes)


def _stored_space(run: Store, settings: Mapping[str, Any]) -> Product:
    try:
        return space_from_description(settings["space"])
    except ValueError as error:
        raise StoreError(
            f"{run.folder} has no result yet, and its draws cannot be read without the model: "
            f"{error} Repeat the call of infer to finish the run, or pass vcmc.load(store, model)."
        ) from None


def _complete_shards(run: Store, settings: Mapping[str, Any]) -> dict[int, list[Chain]]:
    shards = {}
    for shard in range(settings["num_shards"]):
        stored = [folder.blocks() for folder in run.chains(shard)]
        chains = [join_blocks(blocks) for blocks in stored if blocks]
        if len(chains) == settings["num_chains"] and all(
            len(chain.points) == settings["shard_draws"] for chain in chains
        ):
            shards[shard] = [group_by_walker(chain) for chain in chains]
    return shards
