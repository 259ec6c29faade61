"""The first stage of a run: check the model on its shards, and plan the chains."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._runtime import limit_programs, new_pool, thread_map
from ..combiners import Prior
from ..data.params import check_derived
from ..data.partition import check_seed
from ..data.shard import AbstractPartition
from ..data.space_description import describe_space
from ..density import Subposterior
from ..diagnostics.additivity import check_additivity, check_labels
from ..diagnostics.information import ShardFacts, check_information, shard_facts
from ..diagnostics.integrals import prepare as prepare_integrals
from ..diagnostics.local_terms import check_locals
from ..diagnostics.prior_tails import falls_off
from ..diagnostics.shards import ShardWarnings
from ..executors import AbstractExecutor, executor_of
from ..model import Model
from ..progress import ProgressDisplay, Stage
from ..results.tree import renamed_attribute
from ..samplers import HMC, NUTS, AbstractSampler, Independence
from ..samplers.hmc import ADAPTIVE_WARMUP, MAX_NON_NORMALITY, MAX_NORMAL
from ..samplers.independence import MAX_FITTED_DIM, acceptance_rate
from ..samplers.start import common_start, search_starts
from ..samplers.whitening import MAX_WHITENED_DIM, non_normality
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
from .request import Request, supports_prior
from .run_record import RunRecord
from .shard_count import MAX_SHARD_NON_NORMALITY, check_normality, check_silent

if TYPE_CHECKING:
    from xarray import DataTree

# Of independence sampling with local parameters, whose gradients are costly: an effective draw
# takes seven values; and without them, where it takes two.
MIN_COSTLY_ACCEPTANCE_RATE, MIN_ACCEPTANCE_RATE = 0.25, 0.7
# Of a shard: above, independent proposals seldom reach its tails. Scores correct the moments of
# several shards' combined draws, and their shapes.
MAX_COSTLY_NON_NORMALITY, MAX_INDEPENDENT_NON_NORMALITY = 1.0, 0.25
UNWHITENED_WARMUP = 300  # steps of NUTS, where the curvature does not give it a metric


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
    density = target.shard_cache.density(0, *_powers(target, request))
    sampler = request.sampler or own_sampler
    with suppress(Exception), np.errstate(all="ignore"):
        if request.sampler is None and (sampler is None or isinstance(sampler, NUTS)):
            sampler = Independence() if _may_be_independent(target, request) else HMC()
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
    start = jax.device_put(plan.start)
    jobs: list[Callable[[], None]] = [
        partial(plan.sampler.prepare, density, start) for density in densities
    ]
    if request.combiner.needs.scores:
        jobs.append(target.prepare)
    list(thread_map(lambda job: job(), jobs))


def _plan(target: Target, request: Request, own_sampler: Any, start: Point, key: Array) -> Plan:
    prior_power, likelihood_power = _powers(target, request)
    num_shards = request.total_shards(target)
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
                other = _other_prior_power(target, request, measure, np.asarray(start))
                if other is not None:
                    changed = target.shard_cache.density(0, other, likelihood_power)
                    if (closer := non_normality(changed, start)) < measure:
                        measure, prior_power, density = closer, other, changed
            sampler = _choose_sampler(sampler or NUTS(), measure, start.size)
            if np.isfinite(measure) and _may_be_independent(target, request):
                sampler = _independence(density, start, measure, num_shards == 1) or sampler
    shard_draws = request.shard_draws or initial_shard_draws(
        num_shards,
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


def _powers(target: Target, request: Request) -> tuple[float | tuple[float, float], float]:
    """Return the powers of the prior and of the likelihood of a shard."""
    num_shards, prior = request.total_shards(target), request.prior
    if prior == "subposterior":
        share = 1 / num_shards
        # A shard of few groups says little about their spread. Its density in log coordinates would
        # fall off like the K-th root of the Jacobian towards zero; with the Jacobian itself, the
        # shard is the subposterior of the params, and full-data scores correct for the difference.
        return share if target.model.local is None else (share, 1.0), 1.0
    return 1.0, float(num_shards) if prior == "powered" else 1.0


def _other_prior_power(
    target: Target, request: Request, non_normality: float, start: np.ndarray
) -> tuple[float, float] | None:
    """Return powers of prior and Jacobian for shards that are hard to sample, if there are any.

    A shard without an event has the K-th root of the prior of a rate, and in log coordinates a left
    tail K times as long. With the whole Jacobian it has the K-th root of the prior of the
    parameter, which must fall off: that of a heavy-tailed one does not. Full-data scores correct
    for the difference.
    """
    num_shards = request.total_shards(target)
    is_hard = non_normality > MAX_SHARD_NON_NORMALITY and num_shards > 1
    if not (is_hard and request.prior == "subposterior" and request.combiner.needs.scores):
        return None
    powers = 1 / num_shards, 1.0
    return powers if falls_off(target.model, powers, start, np.eye(len(start))).all() else None


def _own_sampler(target: Target, prior: Prior) -> Any:
    """Return the sampler that the model brings, unless it cannot use the prior or weights."""
    sampler = target.model.suited_sampler(target.shard_cache.shards)
    if target.shard_cache.partition.is_weighted and not getattr(sampler, "takes_powers", False):
        return None
    return sampler if supports_prior(sampler, prior) else None


def _choose_sampler(nuts: NUTS, non_normality: float, dim: int) -> AbstractSampler:
    """Return HMC if the first shard is close to normal, else NUTS."""
    if non_normality <= MAX_NORMAL:
        return HMC()
    if non_normality <= MAX_NON_NORMALITY:
        return HMC(num_warmup=ADAPTIVE_WARMUP)
    if nuts.whitens(dim):
        return nuts
    return eqx.tree_at(lambda sampler: sampler.num_warmup, nuts, UNWHITENED_WARMUP)


def _may_be_independent(target: Target, request: Request) -> bool:
    """Return whether independence sampling may take the fewest evaluations.

    It needs no gradient and hardly a warm-up, but its draws are worth fewer: it is for few draws,
    whose moments scores correct, or for costly evaluations, with local parameters.
    """
    if target.model.space.dim > MAX_FITTED_DIM:
        return False
    is_brief = request.shard_draws is None and request.total_shards(target) > 1
    return target.model.local is not None or (is_brief and request.combiner.needs.scores)


def _independence(
    density: Subposterior, start: Point, non_normality: float, is_one: bool
) -> Independence | None:
    """Return independence sampling if a shard is so close to normal that it is efficient."""
    is_costly = density.model.local is not None
    may_be_far = is_costly and not is_one
    if non_normality > (MAX_COSTLY_NON_NORMALITY if may_be_far else MAX_INDEPENDENT_NON_NORMALITY):
        return None
    rate = acceptance_rate(density, start)
    least = MIN_COSTLY_ACCEPTANCE_RATE if is_costly else MIN_ACCEPTANCE_RATE
    return Independence.for_rate(rate) if rate >= least else None


def _one_shard_per_shape(facts: Sequence[ShardFacts]) -> list[int]:
    return list({shard.num_padded: index for index, shard in enumerate(facts)}.values())
