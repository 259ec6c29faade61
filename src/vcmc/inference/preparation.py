"""The first stage of a run: check the model on its shards, and plan the chains."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array

from .._runtime import limit_programs, new_pool, thread_map
from ..data.params import check_derived
from ..data.partition import check_seed
from ..data.shard import AbstractPartition
from ..data.space_description import describe_space
from ..diagnostics.additivity import check_additivity, check_labels
from ..diagnostics.information import ShardFacts, check_information, shard_facts
from ..diagnostics.integrals import prepare as prepare_integrals
from ..diagnostics.local_terms import check_locals
from ..diagnostics.shards import ShardWarnings
from ..executors import AbstractExecutor, executor_of
from ..model import Model
from ..progress import ProgressDisplay, Stage
from ..results.tree import renamed_attribute
from ..samplers import HMC, NUTS, Independence
from ..samplers.start import common_start, search_starts
from ..space import Point
from ..target import Target
from .arguments import check_model
from .assessment import weights_attribute
from .chains import Plan
from .clock import Clock
from .draw_counts import initial_shard_draws
from .index_check import check_indices
from .model_rows import model_rows
from .partitioning import as_partition
from .request import Request
from .run_record import RunRecord
from .sampler_choice import choose_sampler, may_be_independent, own_sampler_of, shard_powers
from .shard_count import check_silent

if TYPE_CHECKING:
    from xarray import DataTree


@dataclass(frozen=True)
class Prepared:
    """The result of the first stage, from which sampling starts.

    Attributes:
        target: the full-data target of the checked model.
        plan: settings of all chains.
        shard_facts: sizes of the shards.
        settings: settings that the result records.
        warnings: warnings before sampling.
    """

    target: Target
    plan: Plan
    shard_facts: list[ShardFacts]
    settings: dict[str, Any]
    warnings: ShardWarnings

    def with_shard_draws(self, shard_draws: int) -> "Prepared":
        """Return the same with another number of draws of every chain."""
        return replace(
            self,
            plan=replace(self.plan, num_draws=shard_draws),
            settings=self.settings | {"shard_draws": shard_draws},
        )


def prepare(
    target: Target,
    request: Request,
    display: ProgressDisplay,
    clock: Clock,
    record: RunRecord | None = None,
) -> Prepared:
    """Check the shards, find a common start, choose the sampler, and compile.

    The run is recorded in its run directory, if it has one.
    """
    stage = display.stage("prepare", 3)
    request = record.continued(request) if record else request
    import_early()
    with new_pool(1, "compile") as pool:  # whose end is waited for
        prepared = _plan_run(target, request, stage, pool)
        if record:
            prepared = prepared.with_shard_draws(record.record(prepared.plan))
        clock.lap("start")
    _compile(prepared, request)
    stage.advance()
    clock.lap("compile")
    return prepared


def _plan_run(target: Target, request: Request, stage: Stage, pool: ThreadPoolExecutor) -> Prepared:
    """Check the shards and plan the chains, while the pool compiles what is known to be needed."""
    _, start_key, sample_key = jax.random.split(jax.random.key(request.seed), 3)

    own_sampler = request.sampler or own_sampler_of(target, request.prior)
    if request.executor.in_process and target.model.local is not None:
        pool.submit(prepare_integrals, target)
    starts = list(request.starts) or search_starts(target.pilot, start_key)
    if request.executor.in_process:
        pool.submit(_compile_early, target, request, own_sampler, starts[0])
    points = np.stack(starts)
    facts = shard_facts(target, points)
    if request.may_reduce_shards:
        silent = np.stack([shard.silent for shard in facts])
        check_silent(silent, target.model.space.coordinates, request.executor)
    warnings = check_information(target, points, facts)
    stage.advance()

    needs_start = own_sampler is None or own_sampler.needs_start
    # draws of an earlier posterior are all near one mode
    climbs = starts[:1] if request.starts else starts
    start = common_start(target, climbs) if needs_start else starts[0]
    plan = _plan(target, request, own_sampler, start, sample_key)
    stage.advance()
    return Prepared(target, plan, facts, run_settings(target, request, plan, facts), warnings)


def run_settings(
    target: Target, request: Request, plan: Plan, facts: Sequence[ShardFacts]
) -> dict[str, Any]:
    """Return the settings of a run that its result records."""
    settings: dict[str, Any] = {
        "seed": request.seed,
        "num_shards": target.num_shards,
        "num_shards_reason": request.num_shards_reason,
        "num_draws": request.num_draws,
        "shard_draws": plan.num_draws,
        "thin": request.thin,
        "prior": request.prior,
        **weights_attribute(request.weights),
        "model": repr(target.model),
        "sampler": repr(plan.sampler),
        "combiner": repr(request.combiner),
        "executor": repr(request.executor),
        "shard_sizes": [shard.num_rows for shard in facts],
        "space": describe_space(target.model.space),
        **renamed_attribute(target.model.renamed),
    }
    if (local := target.model.local) is not None:
        settings |= {"groups": local.groups, "quadrature": repr(local.quadrature)}
        settings["local_parameters"] = list(local.space)
    return settings


def checked_target(
    model: Model, partition: AbstractPartition, executor: AbstractExecutor, key: Array
) -> Target:
    """Build the target of a model with its point estimates, and check that it can be sharded."""
    target = Target.fitted(model, partition, executor)
    check_target(target, key)
    return target


def check_target(target: Target, key: Array) -> None:
    """Check that a model can be sharded, on its first shards."""
    limit_programs(target.model)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    point = jax.device_put(0.5 * generator.normal(size=target.model.space.dim))
    shards = [target.shard_cache.shards[shard] for shard in range(min(2, target.num_shards))]
    if target.model.local is None:
        check_additivity(target.model, shards, point)
        check_labels(target.model, shards[0], point)
    else:
        check_locals(target.model, shards[0], point)
    check_indices(target.model, point, target.shard_cache.partition, shards)
    check_derived(target.model.space, target.model.derived)


def result_target(
    model: Model,
    rows: Any,
    num_shards: int,
    executor: Any,
    seed: int,
    weights: str | None = None,
) -> Target:
    """Build the full-data target of a result, with its rows in as many shards as it had."""
    check_model(model)
    executor = executor_of(executor)
    check_seed(seed)
    partition = as_partition(
        model_rows(rows, model, weights),
        None if isinstance(rows, AbstractPartition) else num_shards,
        seed,
        local=model.local,
        weights=weights,
    )
    return checked_target(model, partition, executor, jax.random.key(seed))


def check_num_rows(tree: "DataTree", target: Target) -> None:
    """Refuse rows that are not as many as those that the model was fitted to, where known."""
    sizes = getattr(target.shard_cache.partition, "sizes", None)
    if sizes is None or "shard_sizes" not in tree.attrs:
        return
    expected, count = int(np.sum(tree.attrs["shard_sizes"])), int(sum(map(np.sum, sizes)))
    if count != expected:
        raise ValueError(
            f"rows must be those that the model was fitted to, {expected} rows; got {count}."
        )


def _compile_early(target: Target, request: Request, own_sampler: Any, start: Point) -> None:
    """Compile the sampler's program while the mode is sought; most shards suit HMC.

    Programs do not depend on the start. Errors are raised where the programs are called.
    """
    density = target.shard_cache.density(0, *shard_powers(target, request))
    sampler = request.sampler or own_sampler
    with suppress(Exception), np.errstate(all="ignore"):
        if request.sampler is None and (sampler is None or isinstance(sampler, NUTS)):
            sampler = Independence() if may_be_independent(target, request) else HMC()
        sampler.prepare(density, start)
        if request.combiner.needs.scores:
            target.prepare()


def import_early() -> None:
    """Import what the result needs, and what xarray does at its first array, in a thread."""
    threading.Thread(target=_import_all).start()


def _import_all() -> None:
    with suppress(Exception):
        import arviz_base  # noqa: F401
        from xarray import DataArray

        DataArray(np.zeros(1))


def _compile(prepared: Prepared, request: Request) -> None:
    """Compile the programs of sampling and combining in parallel, if they run in this process."""
    if not request.executor.in_process:
        return
    plan, target = prepared.plan, prepared.target
    densities = [
        target.shard_cache.density(shard, plan.prior_power, plan.likelihood_power)
        for shard in _one_shard_per_shape(prepared.shard_facts)
    ]
    start = jax.device_put(plan.start)
    jobs: list[Callable[[], None]] = [
        partial(plan.sampler.prepare, density, start) for density in densities
    ]
    if request.combiner.needs.scores:
        jobs.append(target.prepare)
    list(thread_map(lambda job: job(), jobs))


def _plan(target: Target, request: Request, own_sampler: Any, start: Point, key: Array) -> Plan:
    choice = choose_sampler(target, request, own_sampler, start)
    shard_draws = request.shard_draws or initial_shard_draws(
        request.total_shards(target),
        request.num_draws,
        choice.sampler.num_chains,
        request.combiner.needs.scores,
    )
    return Plan(
        choice.sampler,
        np.asarray(start),
        np.asarray(jax.random.key_data(key)),
        shard_draws,
        request.thin,
        choice.prior_power,
        choice.likelihood_power,
        store=request.store,
    )


def _one_shard_per_shape(facts: Sequence[ShardFacts]) -> list[int]:
    return list({shard.num_padded: index for index, shard in enumerate(facts)}.values())
