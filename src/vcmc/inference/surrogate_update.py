"""Update a result with new rows when the old rows are gone: its draws stand for them.

Yesterday's posterior is today's prior. A density that is fitted to the old draws
(`models/surrogate.py`) takes the place of the model's prior, which it contains, and the new rows
are sampled, combined and assessed as those of `infer` are. What the density leaves uncertain is
added to the standard errors of the result (`diagnostics/surrogate_errors.py`), and the verdict says
where it cannot be trusted (`diagnostics/surrogate_trust.py`).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from .._compile_cache import use_compile_cache
from ..combiners import AbstractCombiner, Variational
from ..data.grouped import GroupedPartition
from ..data.shard import AbstractPartition
from ..diagnostics.surrogate_errors import OldPosterior
from ..errors import ModelError
from ..model import Model
from ..models.surrogate_prior import SurrogateModel
from ..progress import ProgressDisplay, ProgressMode
from ..results.tree import SIZES_GROUP
from ..samplers import AbstractSampler
from .arguments import check_model, check_result
from .assessment import (
    Assessment,
    result_tree,
    weights_of,
)
from .clock import Clock
from .local_stage import check_mode
from .local_tasks import LocalsMode
from .partitioning import choose_shards
from .posterior import Posterior
from .preparation import checked_target, prepare
from .request import Request
from .result_points import posterior_points
from .stages import Stages
from .stored_update import SAMPLE_STREAM, stream_seed
from .surrogate_assessment import assess_surrogate, old_posterior
from .update_groups import UPDATES, now, update_groups

if TYPE_CHECKING:
    from xarray import DataTree


def update_without_rows(
    tree: "DataTree",
    model: Model,
    new_rows: Any,
    *,
    name: str = "",
    num_shards: int | None = None,
    seed: int | None = None,
    num_draws: int | None = None,
    shard_draws: int | None = None,
    sampler: AbstractSampler | None = None,
    combiner: AbstractCombiner | None = None,
    executor: Any = None,
    weights: str | None = None,
    refine: bool = False,
    locals: LocalsMode | None = None,  # noqa: A002
    progress: ProgressMode = True,
    compile_cache: bool = True,
) -> "DataTree":
    """Update a result with new rows alone; its draws stand for the old rows.

    Args:
        tree: a result of `infer`, `combine`, `refine` or an update.
        model: the model that made it. Its prior is in the old draws and is not used again.
        new_rows: rows that the old result has not seen, as `infer` takes them; for a model with
            groups, of new groups.
        name: a name for the rows; by default the number of the update.
        num_shards: number of shards of the new rows; by default chosen as `infer` does.
        seed: seed of all random numbers; by default that of the old result.
        num_draws: draws of the posterior; by default 5000.
        shard_draws: draws of every chain in every shard.
        sampler: how a shard is sampled.
        combiner: how draws of shards are combined.
        executor: where shards are sampled and evaluated.
        weights: the column of rows with their weights; by default that of the old result.
        refine: turn the draws into exact ones of the surrogate and the new rows.
        locals: for a model with groups, how local parameters of the new groups are reported.
        progress: show progress if standard error is a terminal.
        compile_cache: whether to use the user's cache of compiled programs.

    Returns:
        A tree as that of `update`, whose shards are those of the new rows. Its verdict carries the
        doubts about the old result, and its standard errors those about the surrogate.
    """
    check_result(tree)
    check_model(model)
    check_mode(locals, has_store=False)
    number = num_updates(tree)
    seed = int(tree.attrs.get("seed", 0)) if seed is None else seed
    combiner = Variational() if combiner is None else combiner
    request = Request.checked(
        seed=stream_seed(seed, number, SAMPLE_STREAM),
        num_draws=num_draws,
        shard_draws=shard_draws,
        error=None,
        thin=1,
        sampler=sampler,
        combiner=combiner,
        executor=executor,
        prior=None,
        store=None,
        weights=weights_of(tree, weights),
    )
    combiner.check(model.space)
    old_points = posterior_points(tree, model)
    old = old_posterior(tree, model, old_points, seed)
    surrogate = old.fitted()
    with use_compile_cache(compile_cache), ProgressDisplay(progress) as display:
        updated = SurrogateModel(model, surrogate)
        partition, request = choose_shards(updated, new_rows, num_shards, request, progress)
        _check_groups(tree, partition)
        # with the surrogate, shards of few rows have proper posteriors close to normal
        request = replace(request, may_reduce_shards=False)
        result = _run(tree, updated, partition, request, old, display, refine, locals)
        entry = {"name": name or str(number), "time": now()}
        return _tree(tree, updated, result, entry)


class _Result(NamedTuple):
    """The new posterior, its assessment, and attributes of its tree."""

    posterior: Posterior
    assessment: Assessment
    settings: dict[str, Any]


def _run(
    tree: "DataTree",
    model: SurrogateModel,
    partition: AbstractPartition,
    request: Request,
    old: OldPosterior,
    display: ProgressDisplay,
    refine: bool,
    locals_mode: LocalsMode | None,
) -> _Result:
    """Run all stages on the new rows, and judge the result with the surrogate's errors."""
    clock = Clock()
    check_key, *_ = jax.random.split(jax.random.key(request.seed), 3)
    target = checked_target(model, partition, request.executor, check_key)
    prepared = prepare(target, request, display, clock)
    stages = Stages(request, None, display, clock, overlap=False)
    prepared, posterior = stages.sample_and_combine(prepared)
    if refine:
        posterior = stages.refine(prepared, posterior)
    assessment = stages.assess(prepared, posterior, is_refined=refine)
    assessment, numbers = assess_surrogate(tree, model, old, target, posterior, assessment)
    clock.lap("surrogate")
    posterior, assessment = stages.draw_locals(prepared, posterior, assessment, locals_mode)
    settings = prepared.settings | posterior.settings | clock.seconds
    return _Result(posterior, assessment, settings | {"exact": posterior.exact} | numbers)


def _tree(tree: "DataTree", model: Model, result: _Result, entry: dict[str, Any]) -> "DataTree":
    """Return the tree of a result, with the history of the old one."""
    sizes = np.atleast_1d(result.settings["shard_sizes"])
    number = num_updates(tree)
    entry |= {
        "num_rows": int(np.sum(sizes)),
        "num_shards": len(sizes),
        "verdict": result.assessment.diagnosis.verdict,
    }
    posterior = result.posterior.groups["posterior"]
    own = update_groups(tree, posterior, model, entry, [number] * len(sizes))
    settings = result.settings | {"update": number}
    return result_tree({**result.posterior.groups, **own}, settings, result.assessment)


def num_updates(tree: "DataTree") -> int:
    """Return the number of states that a result has in its history; one without updates."""
    return int(tree[UPDATES].sizes["update"]) if UPDATES in tree.children else 1


def _check_groups(tree: "DataTree", partition: AbstractPartition) -> None:
    """Refuse new rows of groups that the old result has: their old rows are needed."""
    if not isinstance(partition, GroupedPartition) or SIZES_GROUP not in tree.children:
        return
    known = set()
    for labels in tree[SIZES_GROUP].to_dataset().coords.values():
        known |= set(np.asarray(labels).tolist())
    if repeated := [label for label in np.asarray(partition.labels).tolist() if label in known]:
        shown = ", ".join(map(str, repeated[:3]))
        raise ModelError(
            f"{len(repeated)} groups of the new rows ({shown}) are in the old result. Without "
            "their old rows nothing tells how these and the new ones go together: give the old "
            "rows with rows=, or update with rows of new groups alone."
        )
