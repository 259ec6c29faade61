"""Make the next state of a run directory: sample new shards, combine them with those that are kept.

Rows and draws are written to a folder of the state, whose description is written last. A process
that is killed leaves the state before; the same call finds what was written, and goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..combiners import AbstractCombiner, Variational
from ..data.categories import Levels
from ..data.row_digest import RowDigest
from ..data.shard_list import BatchShard
from ..errors import warn_doubtful
from ..progress import ProgressDisplay, ProgressMode
from ..results.blocks import pack_block
from ..results.checked_files import as_store_error
from ..results.states import History, KnownFacts, ShardName, State
from ..results.tree import build_tree, make_tree
from .batch_plan import BatchPlan, EarlierShard, Rows
from .clock import Clock
from .kept_rows import write_batch
from .local_tasks import LocalsMode
from .request import Request
from .run_history import RunHistory
from .update_groups import now, update_groups
from .update_stages import Batch, UpdateResult, starts_from, update_posterior

if TYPE_CHECKING:
    from xarray import DataTree

SPLIT_STREAM, SAMPLE_STREAM = 0, 1  # of the seed's random numbers


@dataclass(frozen=True)
class UpdateOptions:
    """The arguments that an update and a deletion share.

    Attributes:
        seed: the seed; by default that of the run.
        num_shards: number of shards for the new rows; by default chosen.
        num_draws: draws of the posterior; by default as many as the run had.
        combiner: how draws are combined.
        executor: where shards are sampled and evaluated.
        locals_mode: how local parameters are reported.
        progress: whether progress is shown.
    """

    seed: int | None = None
    num_shards: int | None = None
    num_draws: int | None = None
    combiner: AbstractCombiner | None = None
    executor: Any = None
    locals_mode: LocalsMode | None = None
    progress: ProgressMode = True


@dataclass(frozen=True)
class Change:
    """How the next state differs from the one before.

    Attributes:
        action: "update" or "forget".
        name: the name of the rows.
        num_rows: rows that are added, or, with a minus, deleted.
        digest: of the rows that are added.
        plan: the shards to sample, and those that they replace.
        removed_levels: of columns of text, the numbers of the levels that deleted rows had.
    """

    action: str
    name: str
    num_rows: int
    digest: RowDigest
    plan: BatchPlan
    removed_levels: Mapping[str, np.ndarray] = field(default_factory=dict)

    def with_plan(self, plan: BatchPlan) -> "Change":
        """Return the same rows in other shards."""
        return replace(self, plan=plan)


def stream_seed(seed: int, number: int, stream: int) -> int:
    """Return a seed of its own for an update, so that its draws are independent of others."""
    return int(np.random.SeedSequence((seed, number, stream)).generate_state(1)[0])


def request_for(state: State, number: int, options: UpdateOptions, runs: RunHistory) -> Request:
    """Return the request of the run that samples the shards of an update."""
    settings = state.settings
    seed = settings["seed"] if options.seed is None else options.seed
    return Request.checked(
        seed=stream_seed(seed, number, SAMPLE_STREAM),
        num_draws=options.num_draws or settings["num_draws"],
        shard_draws=None,
        error=None,
        thin=settings["thin"],
        sampler=None,
        combiner=options.combiner or Variational(),
        executor=runs.executor,
        prior=settings["prior"],
        store=runs.history.run(number).folder,
        weights=settings["weights"],
    )


def make_state(
    runs: RunHistory,
    before: State,
    number: int,
    earlier: Sequence[EarlierShard],
    change: Change,
    options: UpdateOptions,
) -> "DataTree":
    """Sample the new shards of a change, combine, and record the state that results.

    Raise `TooManyShards` if the new shards hold too little information.
    """
    clock = Clock()
    kept = [shard for place, shard in enumerate(earlier) if place not in change.plan.replaced]
    groups_before, attributes_before = runs.result(before.number)
    request = request_for(before, number, options, runs)
    request = replace(
        request,
        num_shards_reason=f"{len(change.plan.shards)} of them hold the rows that are new.",
        starts=starts_from(runs.model, _without_chains(groups_before["posterior"])),
    )
    is_forget = change.action == "forget"
    written = _write_rows(runs, number, change, kept if is_forget else ())
    new, copies = written[: len(change.plan.shards)], written[len(change.plan.shards) :]
    if is_forget:  # rows that are kept are read from their copies, which have no labels of others
        kept = [replace(s, rows=rows) for s, rows in zip(kept, copies, strict=True)]
    batches = change.plan.batches or [number] * len(new)
    batch = Batch(runs.model, kept, new, batches, is_reducible=not change.plan.is_fixed)
    with ProgressDisplay(options.progress) as display:
        result = update_posterior(batch, request, options.locals_mode, display, clock)
    names = [ShardName(number, place) for place in range(len(new))]
    kept_names = [shard.name for shard in kept]
    if is_forget:
        kept_names = copy_draws(runs.history, number, kept, len(new))
    state = State(
        number=number,
        parent=before.number,
        action=change.action,
        name=change.name or str(number),
        time=now(),
        num_rows=change.num_rows,
        total_rows=int(sum(result.prepared.settings["shard_sizes"])),
        verdict=result.assessment.diagnosis.verdict,
        shards=(*kept_names, *names),
        batches=tuple(batch.batches),
        shapes=(*(shard.shape for shard in kept), *[result.shape] * len(new)),
        digest=change.digest,
        settings={**before.settings, "num_draws": request.num_draws},
        facts=tuple(
            KnownFacts(shard.num_rows, tuple(np.flatnonzero(shard.silent).tolist()))
            for shard in result.prepared.shard_facts
        ),
    )
    tree_before = None if is_forget else build_tree(groups_before, attributes_before)
    tree = save_result(runs, state, result, clock, tree_before)
    runs.history.write(replace(state, model=runs.identity_after(before, state)))
    runs.history.go_to(number, is_purge_due=is_forget)
    return tree


def _without_chains(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return draws with their chains concatenated."""
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in draws.items()}


def _write_rows(
    runs: RunHistory, number: int, change: Change, kept: Sequence[EarlierShard]
) -> list[BatchShard]:
    """Write the rows of new shards, and copies of those that are kept."""
    folder = runs.history.run(number).rows
    column = runs.model.local.groups if runs.model.local else None
    shards = change.plan.shards
    sources = [*shards, *(shard.read(column) for shard in kept)] if kept else shards
    levels = without_lost_levels(runs.model.levels, change.removed_levels, sources)
    with as_store_error(folder):
        return write_batch(folder, sources, column, levels)


def without_lost_levels(
    levels: Levels, removed: Mapping[str, np.ndarray], rows: Sequence[Rows]
) -> Levels:
    """Return levels of columns of text without the names of those that deleted rows alone had.

    Their numbers remain, as the model has a parameter for each.
    """
    named = dict(levels)
    for name, numbers in removed.items():
        left = np.unique(np.concatenate([np.unique(part[name]) for part in rows]))
        lost = set(np.setdiff1d(numbers, left).tolist())
        texts = [
            f"deleted level {number}" if number in lost else str(text)
            for number, text in enumerate(levels[name])
        ]
        named[name] = np.array(texts)
    return named


def copy_draws(
    history: History,
    number: int,
    kept: Sequence[EarlierShard],
    first: int,
) -> list[ShardName]:
    """Write the draws of kept shards to the folder of a state, after those of its own shards."""
    run = history.run(number)
    for place, shard in enumerate(kept):
        for chain_number, chain in enumerate(shard.chains):
            folder = run.chain(first + place, chain_number)
            folder.write_whole(pack_block(chain, (0.0, 0.0)))
    return [ShardName(number, first + place) for place in range(len(kept))]


def save_result(
    runs: RunHistory,
    state: State,
    result: UpdateResult,
    clock: Clock,
    tree_before: "DataTree | None",
) -> "DataTree":
    """Write the result of a state, and return it; issue its warnings."""
    assessment, posterior = result.assessment, result.posterior
    entry = history_entry(state)
    own = update_groups(
        tree_before, posterior.groups["posterior"], runs.model, entry, state.batches
    )
    groups = {**posterior.groups, **assessment.groups, **own}
    settings = result.settings | clock.seconds | {"update": state.number}
    tree = make_tree(groups, settings)
    store = runs.history.run(state.number)
    store.save_tree(groups, tree.attrs, {})
    store.locals.discard_parts()
    warn_doubtful(assessment.warnings)
    return tree


def history_entry(state: State) -> dict[str, Any]:
    """Return what a tree says of a state."""
    return {
        "num_rows": state.num_rows,
        "num_shards": len(state.shards),
        "time": state.time,
        "verdict": state.verdict,
        "name": state.name or str(state.number),
    }
