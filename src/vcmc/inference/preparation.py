"""The first stage of a run: check the model on its shards, and plan the chains."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._runtime import limit_programs, new_pool, thread_map
from ..combiners import AbstractCombiner, Prior
from ..data.batches import is_large
from ..data.params import check_derived
from ..data.partition import LazyRows, check_seed, split
from ..data.shard import AbstractPartition
from ..data.size import FileRows, RowsSize, rows_size
from ..data.space_description import describe_space
from ..diagnostics.additivity import check_additivity, check_labels
from ..diagnostics.information import ShardFacts, check_information, shard_facts
from ..diagnostics.shards import ShardWarnings
from ..executors import AbstractExecutor, executor_of
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode, Stage
from ..results.store import Store
from ..results.tree import renamed_attribute
from ..samplers import HMC, NUTS, AbstractSampler
from ..samplers.hmc import ADAPTIVE_WARMUP, MAX_NON_NORMALITY, MAX_NORMAL
from ..samplers.start import common_start, search_starts
from ..samplers.whitening import MAX_WHITENED_DIM, non_normality
from ..space import Point
from ..target import Target
from .arguments import (
    MIN_DRAWS,
    check_combiner,
    check_instance,
    check_integer,
    check_model,
    resolve_prior,
)
from .chains import Plan
from .clock import Clock
from .draw_counts import initial_shard_draws
from .error_goal import check_error, draws_for_error, precise_combiner
from .run_record import RunRecord
from .shard_count import check_normality, check_silent, choose_partition

UNWHITENED_WARMUP = 300  # steps of NUTS, where the curvature does not give it a metric


@dataclass(frozen=True)
class Request:
    """The checked arguments of `infer`: how to sample the shards and how to combine them."""

    seed: int
    num_draws: int
    shard_draws: int | None
    error: float | None
    thin: int
    sampler: AbstractSampler | None
    combiner: AbstractCombiner
    executor: AbstractExecutor
    prior: Prior
    store: Store | None
    num_shards_reason: str = ""
    may_reduce_shards: bool = False
    """Whether vcmc chose the number of shards, and may choose a smaller one."""

    @classmethod
    def checked(
        cls,
        *,
        seed: Any,
        num_draws: Any,
        shard_draws: Any,
        error: Any,
        thin: Any,
        sampler: Any,
        combiner: AbstractCombiner,
        executor: Any,
        prior: Any,
        store: str | Path | None,
    ) -> "Request":
        """Check the arguments and fill in the defaults."""
        check_combiner(combiner)
        check_error(error)
        num_draws = draws_for_error(error) if num_draws is None else num_draws
        check_integer("num_draws", num_draws, MIN_DRAWS)
        if shard_draws is not None:
            check_integer("shard_draws", shard_draws, MIN_DRAWS)
        check_integer("thin", thin, 1)
        check_seed(seed)
        prior = resolve_prior(combiner, prior)
        if sampler is not None:
            check_instance("sampler", sampler, AbstractSampler, "vcmc.samplers.NUTS()")
            if not _supports_prior(sampler, prior):
                raise ValueError(
                    f"{type(sampler).__name__} cannot raise a likelihood to a power, which "
                    "prior='powered' requires. Use vcmc.samplers.NUTS()."
                )
        return cls(
            seed,
            num_draws,
            shard_draws,
            error,
            thin,
            sampler,
            combiner if error is None else precise_combiner(combiner, error),
            executor_of(executor),
            prior,
            None if store is None else Store(store),
        )


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
    threading.Thread(target=_import_early).start()
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

    own_sampler = request.sampler or _own_sampler(target, request.prior)
    starts = search_starts(target.pilot, start_key)
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
    start = common_start(target, starts) if needs_start else starts[0]
    plan = _plan(target, request, own_sampler, start, sample_key)
    settings: dict[str, Any] = {
        "seed": request.seed,
        "num_shards": target.num_shards,
        "num_shards_reason": request.num_shards_reason,
        "num_draws": request.num_draws,
        "shard_draws": plan.num_draws,
        "thin": request.thin,
        "prior": request.prior,
        "model": repr(target.model),
        "sampler": repr(plan.sampler),
    }
    stage.advance()
    settings |= {
        "combiner": repr(request.combiner),
        "executor": repr(request.executor),
        "shard_sizes": [shard.num_rows for shard in facts],
        "space": describe_space(target.model.space),
        **renamed_attribute(target.model.renamed),
    }
    return Prepared(target, plan, facts, settings, warnings)


def as_partition(
    rows: Any,
    num_shards: int | None,
    seed: int,
    folder: Path | None = None,
    progress: ProgressMode = True,
) -> AbstractPartition:
    """Return the user's partition, or split the rows; large ones into files in `folder`."""
    if isinstance(rows, AbstractPartition):
        if num_shards not in (None, rows.num_shards):
            raise ValueError(
                "num_shards must be left out or equal the partition's number of shards "
                f"({rows.num_shards}); got {num_shards}."
            )
        return rows
    if num_shards is None:
        raise ValueError(
            "num_shards is required if rows is a function that loads a shard, e.g. "
            "infer(..., num_shards=20)."
            if callable(rows)
            else "num_shards is required here unless rows is a Partition, e.g. num_shards=20."
        )
    if callable(rows):
        return LazyRows(rows, num_shards)
    if isinstance(rows, FileRows):
        return split(
            rows.path, num_shards, seed=seed, columns=rows.columns, folder=folder, progress=progress
        )
    folder = folder if is_large(rows) else None
    return split(rows, num_shards, seed=seed, folder=folder, progress=progress)


def choose_shards(
    model: Model, rows: Any, num_shards: int | None, request: Request, progress: ProgressMode
) -> tuple[AbstractPartition, Request]:
    """Split rows into shards, as many as the user, the run directory or else vcmc says.

    The request is returned with the reason for their number.
    """
    folder = request.store.rows if request.store else None
    split_rows = partial(as_partition, rows, seed=request.seed, folder=folder, progress=progress)
    if num_shards is not None:
        return split_rows(num_shards), replace(request, num_shards_reason="as the user asked.")
    if isinstance(rows, AbstractPartition):
        return rows, replace(request, num_shards_reason="as the rows were split.")
    if callable(rows):
        return split_rows(None), request  # raises an error
    if request.store and (stored := request.store.settings()):
        reason = "as the run directory was begun."
        return split_rows(stored["num_shards"]), replace(request, num_shards_reason=reason)
    is_on_disk = isinstance(rows, FileRows) or is_large(rows)
    try:
        size = rows_size(rows)
    except Exception:  # splitting the rows says what is wrong with them
        size = RowsSize(1, 0)
    partition, reason = choose_partition(
        model.space.dim, size, request.executor, split_rows, is_on_disk
    )
    # to write the files of all shards once more would take too long
    may_reduce = not is_on_disk and partition.num_shards > 1
    return partition, replace(request, num_shards_reason=reason, may_reduce_shards=may_reduce)


def checked_target(
    model: Model, partition: AbstractPartition, executor: AbstractExecutor, key: Array
) -> Target:
    """Build the target of a model with its point estimates, and check that it can be sharded."""
    target = Target.fitted(model, partition, executor)
    limit_programs(target.model)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    point = jax.device_put(0.5 * generator.normal(size=target.model.space.dim))
    shards = [target.shard_cache.shards[shard] for shard in range(min(2, target.num_shards))]
    check_additivity(target.model, shards, point)
    check_labels(target.model, shards[0], point)
    check_derived(target.model.space, target.model.derived)
    return target


def result_target(model: Model, rows: Any, num_shards: int, executor: Any, seed: int) -> Target:
    """Build the full-data target of a result, with its rows in as many shards as it had."""
    check_model(model)
    executor = executor_of(executor)
    check_seed(seed)
    partition = as_partition(
        rows, None if isinstance(rows, AbstractPartition) else num_shards, seed
    )
    return checked_target(model, partition, executor, jax.random.key(seed))


def _compile_early(target: Target, request: Request, own_sampler: Any, start: Point) -> None:
    """Compile the sampler's program while the mode is sought; most shards suit HMC.

    Programs do not depend on the start. Errors are raised where the programs are called.
    """
    density = target.pilot
    sampler = request.sampler or own_sampler
    with suppress(Exception), np.errstate(all="ignore"):
        if request.sampler is None and (sampler is None or isinstance(sampler, NUTS)):
            sampler = HMC()
        sampler.prepare(density, start)
        if request.combiner.needs.scores:
            target.prepare()


def _import_early() -> None:
    """Import what the result needs, and what xarray does at its first array, in a thread."""
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
    start = jnp.asarray(plan.start)
    jobs: list[Callable[[], None]] = [
        partial(plan.sampler.prepare, density, start) for density in densities
    ]
    if request.combiner.needs.scores:
        jobs.append(target.prepare)
    list(thread_map(lambda job: job(), jobs))


def _plan(target: Target, request: Request, own_sampler: Any, start: Point, key: Array) -> Plan:
    prior_power = 1 / target.num_shards if request.prior == "subposterior" else 1.0
    likelihood_power = float(target.num_shards) if request.prior == "powered" else 1.0
    sampler = request.sampler
    if sampler is None:
        sampler = own_sampler
        if sampler is None or isinstance(sampler, NUTS):
            measure = np.inf  # unknown
            if start.size <= MAX_WHITENED_DIM:
                density = target.shard_cache.density(0, prior_power, likelihood_power)
                measure = non_normality(density, start)
                if request.may_reduce_shards:
                    check_normality(measure, target.num_shards, request.executor)
            sampler = _choose_sampler(sampler or NUTS(), measure, start.size)
    shard_draws = request.shard_draws or initial_shard_draws(
        target.num_shards,
        request.num_draws,
        sampler.num_chains,
        request.combiner.needs.scores,
    )
    return Plan(
        sampler,
        np.asarray(start),
        np.asarray(jax.random.key_data(key)),
        shard_draws,
        request.thin,
        prior_power,
        likelihood_power,
        store=request.store,
    )


def _own_sampler(target: Target, prior: Prior) -> Any:
    """Return the sampler that the model brings for its rows, unless it cannot use the prior."""
    sampler = target.model.suited_sampler(target.shard_cache.shards)
    return sampler if _supports_prior(sampler, prior) else None


def _supports_prior(sampler: Any, prior: Prior) -> bool:
    return prior != "powered" or getattr(sampler, "takes_powers", False)


def _choose_sampler(nuts: NUTS, non_normality: float, dim: int) -> AbstractSampler:
    """Return HMC if the first shard is close to normal, else NUTS."""
    if non_normality <= MAX_NORMAL:
        return HMC()
    if non_normality <= MAX_NON_NORMALITY:
        return HMC(num_warmup=ADAPTIVE_WARMUP)
    if nuts.whitens(dim):
        return nuts
    return eqx.tree_at(lambda sampler: sampler.num_warmup, nuts, UNWHITENED_WARMUP)


def _one_shard_per_shape(facts: Sequence[ShardFacts]) -> list[int]:
    return list({shard.num_padded: index for index, shard in enumerate(facts)}.values())
