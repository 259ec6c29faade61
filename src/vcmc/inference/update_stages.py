"""Sample the shards of a new batch, and combine them with the draws of earlier ones.

The full-data target has the prior once and the rows of all batches. Draws of earlier shards were
made with the prior to the power of one over the number of shards then. That does not matter to an
affine map, whose shift and scale are learned from scores of all rows; what the draws of shards
carry is the shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..data.params import to_points
from ..data.shard_list import BatchShard, batches_partition, padded_to, union_of_labels
from ..diagnostics.batch_drift import DRIFT
from ..diagnostics.information import (
    ShardFacts,
    check_information,
    shard_facts,
    shard_kinds,
)
from ..executors import AbstractExecutor
from ..groups.local_model import LocalModel
from ..model import Model
from ..progress import ProgressDisplay
from ..samplers import NUTS
from ..samplers.base import Chain
from ..space import Point
from ..target import Target, row_bytes
from .assessment import Assessment
from .batch_plan import EarlierShard
from .chains import Plan
from .clock import Clock
from .draw_counts import DRAWS_GROWTH, MAX_SHARD_DRAWS
from .local_tasks import LocalsMode
from .posterior import Posterior
from .preparation import Prepared, check_target, prepare, run_settings
from .request import Request
from .run_record import RunRecord
from .sampling import ShardDraws, sample
from .shard_count import ShardCount, TooManyShards
from .stages import Stages, combine_draws

NUM_STARTS = 4  # a mean and draws of the last posterior, near which the new one is sought


class UpdateResult(NamedTuple):
    """The new posterior, what it was made of, and the chains and draws of each new shard."""

    prepared: Prepared
    posterior: Posterior
    assessment: Assessment
    shape: tuple[int, int]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and the verdict, as attributes of a tree."""
        return {
            **self.prepared.settings,
            **self.posterior.settings,
            "exact": self.posterior.exact,
            **self.assessment.attributes,
        }


@dataclass(frozen=True)
class Batch:
    """New shards, and the earlier ones that are kept.

    Attributes:
        model: the model.
        earlier: the shards whose draws are kept.
        new: the rows of the shards that are to be sampled.
        new_batches: the batch that brought the last rows of each of them.
        is_reducible: whether they may be made fewer if they hold too little information.
    """

    model: Model
    earlier: Sequence[EarlierShard]
    new: Sequence[BatchShard]
    new_batches: Sequence[int]
    is_reducible: bool = False

    @property
    def batches(self) -> list[int]:
        """The batch that brought the last rows of every shard."""
        return [*(shard.batch for shard in self.earlier), *self.new_batches]

    def facts(self, full: Target, points: Float[np.ndarray, "point dim"]) -> list[ShardFacts]:
        """Return facts about every shard; those that an earlier update has are not computed."""
        pilot = full.pilot.shard
        kinds = shard_kinds(pilot)
        coordinates = np.arange(full.model.space.dim)
        known = {
            place: ShardFacts(
                np.isin(coordinates, shard.facts.silent),
                shard.facts.num_rows,
                padded_to(shard.num_rows, row_bytes(pilot)),
                kinds,
            )
            for place, shard in enumerate(self.earlier)
            if shard.facts is not None
        }
        return shard_facts(full, points, known)

    def targets(self, weights: str | None, executor: AbstractExecutor) -> tuple[Target, Target]:
        """Return the target of all rows, and that of the new shards alone."""
        shards = [*(shard.rows for shard in self.earlier), *self.new]
        # a new shard, whose programs are needed to sample it
        pilot_shard = len(self.earlier) if self.new else 0
        full = target_of(self.model, shards, weights, executor, pilot_shard)
        labels = _labels(self.model.local, shards)
        new = _partition(self.model.local, self.new, weights, labels)
        return full, Target(full.model, new, executor)


def target_of(
    model: Model,
    shards: Sequence[BatchShard],
    weights: str | None,
    executor: AbstractExecutor,
    pilot_shard: int = 0,
) -> Target:
    """Return the target of the rows of some shards."""
    partition = _partition(model.local, shards, weights, _labels(model.local, shards))
    return Target.fitted(model, partition, executor, pilot_shard)


def _labels(local: LocalModel | None, shards: Sequence[BatchShard]) -> np.ndarray | None:
    if local is None:
        return None
    table = None if local.table is None else dict(local.table)
    return union_of_labels(shards, table, local.groups)


def _partition(
    local: LocalModel | None,
    shards: Sequence[BatchShard],
    weights: str | None,
    labels: np.ndarray | None,
) -> Any:
    if local is None:
        return batches_partition(shards, weights)
    table = None if local.table is None else dict(local.table)
    return batches_partition(shards, weights, local.groups, labels, table)


def starts_from(model: Model, draws: dict[str, np.ndarray]) -> tuple[Point, ...]:
    """Return the mean of posterior draws as a point, and some of the draws."""
    points = np.asarray(to_points(model.space, {name: draws[name] for name in model.space}))
    chosen = points[np.arange(NUM_STARTS - 1) * len(points) // (NUM_STARTS - 1)]
    return tuple(jax.device_put(point) for point in (points.mean(axis=0), *chosen))


def update_posterior(
    batch: Batch,
    request: Request,
    locals_mode: LocalsMode | None,
    display: ProgressDisplay,
    clock: Clock,
) -> UpdateResult:
    """Sample the new shards, and combine and assess all of them.

    The draws are stored in the directory of the request, if it has one. Raise `TooManyShards` if
    the new shards hold too little information, and may be made fewer.
    """
    full, new = batch.targets(request.weights, request.executor)
    request = replace(
        request, num_earlier_shards=len(batch.earlier), may_reduce_shards=batch.is_reducible
    )
    if not batch.new:
        whole = _whole(batch, full, request, batch.facts(full, np.stack(request.starts)))
        whole, posterior = _combine(batch, whole, None, request, display, clock)
        stages = Stages(request, None, display, clock, overlap=False)
        return _assessed(stages, whole, posterior, (0, 0), locals_mode)
    check_key, *_ = jax.random.split(jax.random.key(request.seed), 3)
    check_target(new, check_key)
    prepared, whole, record = _prepare(batch, full, new, request, display, clock)
    stages = Stages(request, record, display, clock, overlap=False)
    while True:
        drawn = sample(prepared, request, display)
        clock.lap("sample")
        whole, posterior = _combine(batch, whole, drawn, request, display, clock)
        more = DRAWS_GROWTH * prepared.plan.num_draws
        if not posterior.needs_more_draws or more > MAX_SHARD_DRAWS or full.num_shards == 1:
            break
        prepared = stages.extend(prepared, more)
    return _assessed(stages, whole, posterior, drawn.points.shape[1:3], locals_mode)


def _assessed(
    stages: Stages,
    whole: Prepared,
    posterior: Posterior,
    shape: tuple[int, int],
    locals_mode: LocalsMode | None,
) -> UpdateResult:
    assessment = _with_drift(stages.assess(whole, posterior, is_refined=False))
    posterior, assessment = stages.draw_locals(whole, posterior, assessment, locals_mode)
    return UpdateResult(whole, posterior, assessment, shape)


def _with_drift(assessment: Assessment) -> Assessment:
    """Return an assessment whose text says which batches disagree, though the result is good."""
    diagnosis = assessment.diagnosis
    drift = [remark for remark in assessment.remarks if remark.startswith(DRIFT)]
    if not drift or diagnosis.verdict != "good":
        return assessment  # then it is among the reasons
    basis = " ".join(filter(None, [diagnosis.basis, *drift]))
    return assessment._replace(diagnosis=replace(diagnosis, basis=basis))


def _combine(
    batch: Batch,
    whole: Prepared,
    drawn: ShardDraws | None,
    request: Request,
    display: ProgressDisplay,
    clock: Clock,
) -> tuple[Prepared, Posterior]:
    """Combine the draws of all shards; return the settings of these, too."""
    draws = joined_draws(batch.earlier, drawn)._replace(batches=batch.batches)
    counts = {} if draws.counts is None else {"draw_counts": draws.counts}
    whole = replace(whole, settings=whole.settings | counts)
    return whole, combine_draws(whole, request, draws, display, clock)


def _prepare(
    batch: Batch,
    full: Target,
    new: Target,
    request: Request,
    display: ProgressDisplay,
    clock: Clock,
) -> tuple[Prepared, Prepared, RunRecord | None]:
    """Return the first stage of the new shards, and that of all, which have all warnings."""
    facts = batch.facts(full, np.stack(request.starts))
    silent = np.stack([shard.silent for shard in facts])
    is_lacking = silent[len(batch.earlier) :].any(axis=0) & ~silent.all(axis=0)
    if batch.is_reducible and is_lacking.any():
        raise TooManyShards(ShardCount(1, "the new rows hold no information on some coordinates."))
    record = RunRecord.opened(new, request, {})
    prepared = prepare(new, request, display, clock, record)
    return prepared, _whole(batch, full, request, facts, prepared), record


def _whole(
    batch: Batch,
    full: Target,
    request: Request,
    facts: list[ShardFacts],
    prepared: Prepared | None = None,
) -> Prepared:
    """Return the first stage of all shards, given that of the new ones, if there are any."""
    points = np.stack(request.starts)
    plan = prepared.plan if prepared else kept_plan(request, batch)
    settings = run_settings(full, request, plan, facts)
    return Prepared(full, plan, facts, settings, check_information(full, points, facts))


def kept_plan(request: Request, batch: Batch) -> Plan:
    """Return the plan of a state without new shards, whose chains were all made before."""
    return Plan(
        NUTS(),
        np.asarray(request.starts[0]),
        np.asarray(jax.random.key_data(jax.random.key(request.seed))),
        max(shard.shape[1] for shard in batch.earlier),
        request.thin,
        1 / len(batch.earlier),
        1.0,
    )


def joined_draws(earlier: Sequence[EarlierShard], drawn: ShardDraws | None) -> ShardDraws:
    """Return the draws of all shards, the new ones last.

    Where shards have different numbers of chains or draws, chains are concatenated and padded.
    """
    shards = [
        *(_stacked(shard.chains) for shard in earlier),
        *_by_shard(drawn),
    ]
    names = [n for n in shards[0].stats if all(n in shard.stats for shard in shards)]
    if len({shard.points.shape for shard in shards}) == 1:
        points = np.stack([shard.points for shard in shards])
        stats = {name: np.stack([shard.stats[name] for shard in shards]) for name in names}
        return ShardDraws(points, stats, {})
    counts = [shard.points.shape[0] * shard.points.shape[1] for shard in shards]

    def padded(array: np.ndarray) -> np.ndarray:
        flat = array.reshape(-1, *array.shape[2:]).astype(float)
        missing = np.full((max(counts) - len(flat), *flat.shape[1:]), np.nan)
        return np.concatenate([flat, missing])[None]

    points = np.stack([padded(shard.points) for shard in shards])
    stats = {name: np.stack([padded(shard.stats[name]) for shard in shards]) for name in names}
    return ShardDraws(points, stats, {}, counts=counts)


def _by_shard(drawn: ShardDraws | None) -> list[Chain]:
    """Return the draws of each new shard, if there are any."""
    if drawn is None:
        return []
    return [
        Chain(points, {name: values[shard] for name, values in drawn.stats.items()})
        for shard, points in enumerate(drawn.points)
    ]


def _stacked(chains: Sequence[Chain]) -> Chain:
    """Return the chains of a shard as arrays with a leading axis of chains."""
    points = np.stack([chain.points for chain in chains])
    names = chains[0].stats
    return Chain(points, {n: np.stack([chain.stats[n] for chain in chains]) for n in names})
