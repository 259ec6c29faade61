"""Combine draws of shards that were made elsewhere."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .. import combiners, executors
from ..combiners.base import Subposteriors
from ..data.params import to_points
from ..data.partition import check_seed
from ..data.shard import AbstractPartition
from ..diagnostics.shards import broken_shards
from ..diagnostics.verdict import judge
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.draws import StreamedDraws, named_draws, shapes_of, space_of
from ..results.tree import make_tree
from ..space import Product, Space
from ..target import Target
from .assembly import (
    Clock,
    as_chains,
    check_kind,
    check_together,
    checked_target,
    groups_of,
    partition_of,
    prior_doubts,
    settled_prior,
)
from .diagnosis import diagnose_draws, stored
from .shard_summary import ShardSummary, summarize_shards, summarize_streamed_shards

if TYPE_CHECKING:
    from xarray import DataTree


def combine(
    draws: Any,
    *,
    combiner: combiners.AbstractCombiner | None = None,
    space: Mapping[str, Space] | None = None,
    model: Model | None = None,
    rows: Any = None,
    prior: combiners.Prior | None = None,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> "DataTree":
    """Combine draws of shards that were made elsewhere.

    Args:
        draws: a mapping from names to arrays (shard, draw, …), or an xarray Dataset with dimensions
            (shard, draw, …) or (shard, chain, draw, …), or a DataTree whose `subposterior` is one; or, where shards differ in
            their number of draws, a mapping from names to lists of arrays, or a list of mappings, one for each shard; or
            `LazyDraws`, which are loaded one shard at a time and not held, if the combiner can do that.
        combiner: how draws are combined; by default `combiners.Variational()` if there are a model and rows, which it
            needs, and `combiners.Consensus()` otherwise.
        space: where the parameters live. Parameters that are not named are taken as real. Draws are
            combined in real coordinates: say `{"scale": vcmc.Positive()}`, and the combined draws of
            `scale` are positive.
        model: the model of all rows, for combiners that need the full-data log density; it says `space`, too.
        rows: all rows, as `infer` takes them.
        prior: what the shards hold besides their rows, as in `infer`; by default what a tree says, or what the combiner needs.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of what is random in the combiner.
        progress: show progress if standard error is a terminal; "lines" writes plain lines elsewhere.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> tree = combine({"beta": draws})
    >>> dict(tree["posterior"].sizes)
    {'chain': 1, 'draw': 500, 'beta_dim_0': 2}
    """
    if combiner is None:
        combiner = combiners.Consensus() if model is None else combiners.Variational()
    check_kind("combiner", combiner, combiners.AbstractCombiner, "vcmc.combiners.Consensus()")
    executor = executors.executor_of(executor)
    check_seed(seed)
    if model is not None:
        check_kind(
            "model", model, Model, "vcmc.Model(...), vcmc.from_numpyro(...) or vcmc.from_pymc(...)"
        )
        if space is not None:
            raise ValueError(
                "combine takes space= or a model, which says where its parameters live; got both."
            )
        space = model.space
    if prior is None and hasattr(draws, "children"):
        prior = draws.attrs.get("prior")
    prior = settled_prior(combiner, prior)
    found = named_draws(draws, space)
    shapes = shapes_of(found)
    if model is not None:
        if missing := set(model.space) - set(shapes):
            raise ValueError(
                f"the model has the parameters {list(model.space)}, but there are no draws of {sorted(missing)}."
            )
        shapes = {
            name: shapes[name] for name in model.space
        }  # its order is that of a point's coordinates
    product = space_of(shapes, space or {})
    combiner.check(product)
    clock = Clock()
    with ProgressDisplay(progress) as bars:
        stage = bars.stage("look at the shards", None)
        seen = (
            summarize_streamed_shards(product, found)
            if isinstance(found, StreamedDraws)
            else _survey(product, found)
        )
        stage.finish()
        _refuse_broken(seen.broken)
        clock.lap("check")
        stage = bars.stage("combine", None)
        num_shards = len(seen.counts)
        target = _target(model, rows, num_shards, seed, executor)
        clock.lap("load")
        combined = combiner(Subposteriors(seen.points, product, target, seed, stage.advance))
        stage.finish()
        clock.lap("combine")
    groups, notes = groups_of(product, seen, {}, combined, prior, model)
    notes = _missing(draws) + prior_doubts(combiner, prior, num_shards) + notes
    if target is None:
        diagnosis = judge(None, {}, notes, np.nan)
    else:
        diagnosis = diagnose_draws(np.asarray(as_chains(combined, seen)), target, notes, seed)
    clock.lap("diagnose")
    settings: dict[str, Any] = {
        "num_shards": num_shards,
        "num_draws": max(seen.counts) // seen.num_chains,
        "seed": seed,
        "prior": prior,
        "combiner": repr(combiner),
        "curved": [name for name, inside in product.items() if not inside.is_real],
    }
    if len(set(seen.counts)) > 1:
        settings["draw_counts"] = seen.counts
    more, verdict = stored(diagnosis, notes)
    return make_tree(groups | more, settings | clock.seconds | verdict)


def _missing(draws: Any) -> list[str]:
    """What is doubtful about a tree that has not got the draws of all shards."""
    if not hasattr(draws, "children") or "sound_shards" not in draws.attrs:
        return []
    sound = set(np.atleast_1d(draws.attrs["sound_shards"]).tolist())
    missing = [shard for shard in range(int(draws.attrs["num_shards"])) if shard not in sound]
    if not missing:
        return []
    return [
        f"shards {missing} are missing: what their rows say is not in the other shards' draws, and {len(missing) / (len(missing) + len(sound)):.0%} "
        "of the tempered prior is not either. Sample them, or give combine a combiner that corrects for it, with the model and all rows."
    ]


def _survey(space: Product, arrays: dict[str, np.ndarray]) -> ShardSummary:
    num_shards, num_chains, num_draws = next(iter(arrays.values())).shape[:3]
    flat = {name: arrays[name].reshape(-1, *arrays[name].shape[3:]) for name in space}
    points = np.asarray(to_points(space, flat)).reshape(num_shards, num_chains, num_draws, -1)
    _refuse_broken(broken_shards(points))
    return summarize_shards(space, points)


def _refuse_broken(reasons: Mapping[int, str]) -> None:
    if reasons:
        raise ValueError(
            "every shard's draws must be its own, vary, be finite and lie inside the parameter's space; got "
            + "; ".join(f"shard {shard}: {reason}" for shard, reason in reasons.items())
            + ". Remove or redo these shards, and check space=."
        )


def _target(
    model: Model | None, rows: Any, num_shards: int, seed: int, executor: executors.AbstractExecutor
) -> Target | None:
    check_together("combine", model, rows)
    if model is None:
        return None
    partition = partition_of(
        rows, None if isinstance(rows, AbstractPartition) else num_shards, seed
    )
    return checked_target(model, partition, executor, jax.random.key(seed))
