"""Search for modes once the shards have been sampled, and sample every shard near the others."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ..combiners.base import Subposteriors
from ..combiners.modes import posterior_scale, search_modes
from ..diagnostics.modes import ModeSearch
from ..errors import ShardError
from ..linalg.whitening import Whitening
from ..progress import ProgressDisplay
from ..samplers import HMC, Independence
from .preparation import Prepared
from .request import Request
from .sampling import ShardDraws, sample


def seek_modes(prepared: Prepared, request: Request, draws: ShardDraws) -> ModeSearch | None:
    """Search for modes from the start of the chains; None if nobody wants to know.

    Exchangeable components have a mode for every labelling, which is not sought.
    """
    target = prepared.target
    space = target.model.space
    if not request.seeks_modes or space.labelled():
        return None
    flat = draws.points.reshape(target.num_shards, -1, space.dim)
    shards = Subposteriors(jnp.asarray(flat), space, target, request.seed)
    scale = posterior_scale(shards)
    return search_modes(shards, target, Whitening(np.asarray(prepared.plan.start), scale.root))


def sample_near_modes(
    prepared: Prepared,
    request: Request,
    draws: ShardDraws,
    search: ModeSearch,
    display: ProgressDisplay,
) -> ShardDraws:
    """Return the shards' draws with chains that start at the other modes after the first ones.

    These chains are not stored: a run that is resumed makes them again, with the same draws. Where
    a shard cannot be sampled from a mode, the combiner makes up for it.
    """
    parts = [draws]
    for mode, found in enumerate(search.modes):
        if mode == search.own:
            continue
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(prepared.plan.key)), mode)
        sampler = prepared.plan.sampler
        if isinstance(sampler, Independence) and prepared.target.model.local is None:
            sampler = HMC()  # whose steps are short: proposals of flat shards reach the other modes
        plan = replace(
            prepared.plan,
            sampler=sampler,
            start=np.asarray(found.point),
            key=np.asarray(jax.random.key_data(jax.random.fold_in(key, len(search.modes)))),
            store=None,
        )
        try:
            near = replace(prepared, plan=plan)
            parts.append(sample(near, request, display, where=f" near mode {mode}"))
        except ShardError:
            continue
    return ShardDraws(
        np.concatenate([part.points for part in parts], axis=1),
        {
            name: np.concatenate([part.stats[name] for part in parts], axis=1)
            for name in draws.stats
        },
        {
            name: np.concatenate([part.seconds[name] for part in parts], axis=1)
            for name in draws.seconds
        },
        draws.learned,
    )
