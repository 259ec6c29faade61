"""Combine draws of shards that were made elsewhere."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from . import combiners, executors
from .assembly import Clock, by_shard, check_kind, checked_target, groups_of, partition_of
from .combiners.base import Subposteriors
from .diagnose import diagnose_draws, stored
from .diagnostics.shards import broken_shards
from .diagnostics.verdict import judge
from .draws import named_draws, space_of
from .model import Model
from .partition import Partition, check_seed
from .progress import Bars
from .result import make_tree, to_points
from .space import Space
from .target import Target

if TYPE_CHECKING:
    from xarray import DataTree


def combine(
    draws: Any,
    *,
    combiner: combiners.AbstractCombiner | None = None,
    space: Mapping[str, Space] | None = None,
    model: Model | None = None,
    rows: Any = None,
    executor: executors.AbstractExecutor | None = None,
    seed: int = 0,
    progress: bool = True,
) -> "DataTree":
    """Combine draws of shards that were made elsewhere.

    Args:
        draws: a mapping from names to arrays (shard, draw, …), or an xarray Dataset with dimensions
            (shard, draw, …) or (shard, chain, draw, …), or a DataTree whose `subposterior` is one.
        combiner: how draws are combined; by default `combiners.Variational()` if there are a model and rows, which it
            needs, and `combiners.Consensus()` otherwise.
        space: where the parameters live. Parameters that are not named are taken as real. Draws are
            combined in real coordinates: say `{"scale": vcmc.Positive()}`, and the combined draws of
            `scale` are positive.
        model: the model of all rows, for combiners that need the full-data log density; it says `space`, too.
        rows: all rows, as `infer` takes them.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of what is random in the combiner.
        progress: show progress if standard error is a terminal.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> tree = combine({"beta": draws})
    >>> dict(tree["posterior"].sizes)
    {'chain': 1, 'draw': 500, 'beta_dim_0': 2}
    """
    if combiner is None:
        combiner = combiners.Consensus() if model is None else combiners.Variational()
    check_kind("combiner", combiner, combiners.AbstractCombiner, "vcmc.combiners.Consensus()")
    executor = executor or executors.Local()
    check_kind("executor", executor, executors.AbstractExecutor, "vcmc.executors.Local()")
    check_seed(seed)
    if model is not None:
        check_kind("model", model, Model, "vcmc.Model(...) or vcmc.from_numpyro(...)")
        if space is not None:
            raise ValueError(
                "combine takes space= or a model, which says where its parameters live; got both."
            )
        space = model.space
    arrays = named_draws(draws, space)
    if model is not None:
        if missing := set(model.space) - set(arrays):
            raise ValueError(
                f"the model has the parameters {list(model.space)}, but there are no draws of {sorted(missing)}."
            )
        arrays = {name: arrays[name] for name in model.space}  # its order is that of a point's coordinates
    product = space_of(arrays, space or {})
    num_shards, num_chains, num_draws = next(iter(arrays.values())).shape[:3]
    flat = {name: array.reshape(-1, *array.shape[3:]) for name, array in arrays.items()}
    points = np.asarray(to_points(product, flat)).reshape(num_shards, num_chains, num_draws, -1)
    settings = {"num_shards": num_shards, "num_draws": num_draws, "seed": seed, "combiner": repr(combiner)}
    if reasons := broken_shards(points):
        raise ValueError(
            "every shard's draws must be its own, vary, be finite and lie inside the parameter's space; got "
            + "; ".join(f"shard {shard}: {reason}" for shard, reason in reasons.items())
            + ". Remove or redo these shards, and check space=."
        )
    clock = Clock()
    with Bars(progress) as bars:
        stage = bars.stage("combine", None)
        target = _target(model, rows, num_shards, seed, executor)
        combined = combiner(Subposteriors(by_shard(points), product, target, seed, stage.advance))
        stage.finish()
        clock.lap("combine")
    groups, notes = groups_of(product, points, {}, combined, model)
    if target is None:
        diagnosis = judge(None, {}, notes, np.nan)
    else:
        merged = np.asarray(combined.draws).reshape(points.shape[1:])
        diagnosis = diagnose_draws(merged, target, notes, seed)
    clock.lap("diagnose")
    more, verdict = stored(diagnosis, notes)
    return make_tree(groups | more, settings | clock.seconds | verdict)


def _target(
    model: Model | None, rows: Any, num_shards: int, seed: int, executor: executors.AbstractExecutor
) -> Target | None:
    if (model is None) != (rows is None):
        raise ValueError("combine takes a model and its rows together, or neither; got only one of them.")
    if model is None:
        return None
    partition = partition_of(rows, None if isinstance(rows, Partition) else num_shards, seed)
    return checked_target(model, partition, executor, jax.random.key(seed))
