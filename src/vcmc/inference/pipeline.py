"""The verb `infer`: prepare, sample, combine, refine if asked to, assess."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp

from .._compile_cache import use_compile_cache
from ..combiners import AbstractCombiner, Prior, Variational
from ..combiners.base import Subposteriors
from ..data.params import to_params
from ..data.shard import AbstractPartition
from ..errors import AssessmentError, CombineError, ShardError, SlotLost, TaskError
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.lock import locked
from ..results.tree import make_tree
from ..samplers import AbstractSampler
from .arguments import check_model
from .assessment import ONE_SHARD, Assessment, assess, result_tree
from .clock import Clock
from .combination import Posterior, combine_shards
from .draw_counts import DRAWS_GROWTH, MAX_SHARD_DRAWS
from .ensemble import Goal
from .error_goal import SHARD_DRAWS_GROWTH, refinement_goal, shortfall
from .preparation import (
    Prepared,
    Request,
    as_partition,
    checked_target,
    choose_shards,
    prepare,
)
from .refinement import DEFAULT_GOAL, refine_draws
from .run_record import RunRecord
from .sampling import ShardDraws, sample, shard_tree
from .shard_count import TooManyShards
from .shard_summary import summarize_shards

if TYPE_CHECKING:
    from xarray import DataTree


def infer(
    model: Model,
    rows: Any,
    *,
    num_shards: int | None = None,
    seed: int = 0,
    num_draws: int | None = None,
    shard_draws: int | None = None,
    error: float | None = None,
    thin: int = 1,
    sampler: AbstractSampler | None = None,
    combiner: AbstractCombiner | None = None,
    executor: Any = None,
    store: str | Path | None = None,
    overlap: bool = False,
    prior: Prior | None = None,
    refine: bool = False,
    progress: ProgressMode = True,
    compile_cache: bool = True,
) -> "DataTree":
    """Sample the posterior of a model on rows that are split into shards.

    Args:
        model: a `Model`, e.g. from `from_numpyro`.
        rows: a mapping of arrays with one leading axis, a pandas or polars data frame,
            or a `Partition`. If rows do not fit into memory: the path of a Parquet file, of a
            folder of them, or of a Zarr store; a mapping of memory-mapped arrays; or a function
            from a shard's number to its rows.
        num_shards: number of shards; by default chosen by the size of the rows, the number of
            coordinates, the executor's slots and the information that shards would hold. The
            result has it in the attribute `num_shards`, and why in `num_shards_reason`. It is
            required if `rows` is a function.
        seed: seed of all random numbers: the same seed gives the same draws.
        num_draws: draws of the posterior; by default 5000, which give 5 % and 95 % quantiles to
            0.02 sd, or more if `error` asks for it. Shards are independent, so few draws of each
            make many: draws of shards are paired at random, as often as needed.
        shard_draws: draws of every chain in every shard; by default as many as the shape of the
            posterior needs: 100 for ten shards or more, more for fewer, and more where chains mix
            slowly. A single shard makes all draws of the posterior.
        error: the largest error of a mean or a quantile, in posterior sds, and of an sd, relative.
            Shards are sampled further, and the draws refined, until the estimated errors are
            within it; the result says so if they are not.
        thin: keep every `thin`-th draw of a shard: a chain makes `thin * shard_draws`.
        sampler: how a shard is sampled; by default the model's own sampler, `samplers.HMC()`
            where the density of the first shard is close to normal, or `samplers.NUTS()`.
        combiner: how draws are combined; by default `combiners.Variational()`, a shift and a
            scale on top of averages.
        executor: where shards are sampled and evaluated: `executors.Local()`, the default,
            `Processes(n)`, `Dask(address)`, `Ray()`, or any `concurrent.futures.Executor` of
            processes. It does not change the draws.
        store: a run directory. Draws are written to it as they are made, and the result at the
            end; the same call resumes a run that was stopped, with the same draws, and returns
            the result of one that has finished. A larger `shard_draws` continues the chains.
            `vcmc.load(store)` returns the result.
        overlap: optimize on the first half of the draws while the second half is sampled, and
            start from there in the end.
        prior: "subposterior" gives every shard the prior to the power 1/K, so that shards
            multiply to the posterior; "partial" gives every shard the full prior, which averages
            then count K times; "powered" gives it the full prior and raises its likelihood to
            the power K, so that every shard approximates the whole posterior. By default the
            one that the combiner needs.
        refine: turn the combined draws into exact ones, as `vcmc.refine` does, by evaluating
            all rows more often.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.
        compile_cache: whether to use the user's cache of compiled programs, if there is one. The
            processes of an executor follow the variable VCMC_COMPILE_CACHE of their own.

    Returns:
        An `xarray.DataTree` with the groups `posterior` (chain, draw, …), `subposterior`
        (shard, chain, draw, …), `sample_stats`, `sample_seconds` (when each chain began and
        ended), `subposterior_rhat` and `subposterior_ess`; where draws are averages, `weights`
        (shard, …) by unconstrained coordinate; and where a combiner optimized, the objective and
        its Monte Carlo error by iteration in `optimization`. Estimated errors of means (in
        posterior sds), of sds (as shares) and of 5 % and 95 % quantiles (in posterior sds) are in
        `mean_error`, `sd_error`, `q05_error` and `q95_error`, their standard errors in
        `mean_error_se` and so on; `diagnose(tree)` prints them. Attributes
        record seed, settings, space, versions and seconds, the verdict in `verdict` and
        `verdict_text`, and all warnings in `warnings`.
    """
    check_model(model)
    request = Request.checked(
        seed=seed,
        num_draws=num_draws,
        shard_draws=shard_draws,
        error=error,
        thin=thin,
        sampler=sampler,
        combiner=Variational() if combiner is None else combiner,
        executor=executor,
        prior=prior,
        store=store,
    )
    _check_combiner(request.combiner, model, overlap)
    lock = locked(request.store.folder) if request.store else nullcontext()
    with use_compile_cache(compile_cache), lock:
        partition, request = choose_shards(model, rows, num_shards, request, progress)
        options: Any = {"overlap": overlap, "refine": refine, "progress": progress}
        try:
            return _run(model, partition, request, **options)
        except TooManyShards as error:
            fewer = error.fewer
        partition = as_partition(rows, fewer.number, seed)
        request = replace(request, num_shards_reason=fewer.reason, may_reduce_shards=False)
        return _run(model, partition, request, **options)


def _run(
    model: Model,
    partition: AbstractPartition,
    request: Request,
    *,
    overlap: bool,
    refine: bool,
    progress: ProgressMode,
) -> "DataTree":
    """Run all stages, or return the result of a run directory that answers the same request."""
    clock = Clock()
    with ProgressDisplay(progress) as display:
        check_key, *_ = jax.random.split(jax.random.key(request.seed), 3)
        with _before_sampling():
            target = checked_target(model, partition, request.executor, check_key)
            record = RunRecord.opened(target, request, {"overlap": overlap, "refine": refine})
            if record and (result := record.result()) is not None:
                return result
            prepared = prepare(target, request, display, clock, record)
        run = _Run(request, record, display, clock, overlap)
        prepared, posterior = run.sample_and_combine(prepared)
        if refine:
            posterior = run.refine(prepared, posterior)
        assessment = run.assess(prepared, posterior, is_refined=refine)
        if request.error is not None:
            prepared, posterior, assessment = run.improve(prepared, posterior, assessment, refine)
    settings = prepared.settings | posterior.settings | clock.seconds | {"exact": posterior.exact}
    tree = result_tree(posterior.groups, settings, assessment)
    if record:
        record.save(posterior.groups | assessment.groups, tree)
    return tree


@dataclass(frozen=True)
class _Run:
    """The stages of a run, with what they share."""

    request: Request
    record: RunRecord | None
    display: ProgressDisplay
    clock: Clock
    overlap: bool

    def sample_and_combine(self, prepared: Prepared) -> tuple[Prepared, Posterior]:
        """Sample and combine; go on until there are enough draws, unless their number is given."""
        while True:
            draws = sample(prepared, self.request, self.display, self.overlap)
            self.clock.lap("sample")
            posterior = _combine(prepared, self.request, draws, self.display, self.clock)
            more = DRAWS_GROWTH * prepared.plan.num_draws
            is_fixed = self.request.shard_draws is not None or more > MAX_SHARD_DRAWS
            is_fixed |= prepared.target.num_shards == 1
            if is_fixed or not posterior.needs_more_draws:
                return prepared, posterior
            prepared = self.extend(prepared, more)

    def extend(self, prepared: Prepared, shard_draws: int) -> Prepared:
        """Ask for more draws of every shard."""
        if self.record:
            self.record.extend(prepared.plan, shard_draws)
        return prepared.with_shard_draws(shard_draws)

    def refine(
        self, prepared: Prepared, posterior: Posterior, goal: Goal = DEFAULT_GOAL
    ) -> Posterior:
        """Refine the combined draws."""
        refined = _refine(prepared, posterior, goal, self.request.seed, self.display)
        self.clock.lap("refine")
        return refined

    def assess(self, prepared: Prepared, posterior: Posterior, is_refined: bool) -> Assessment:
        """Estimate the errors of the posterior draws."""
        assessment = _assess(prepared, posterior, self.request.seed, self.display, is_refined)
        self.clock.lap("diagnose")
        return assessment

    def improve(
        self, prepared: Prepared, posterior: Posterior, assessment: Assessment, is_refined: bool
    ) -> tuple[Prepared, Posterior, Assessment]:
        """Take more draws, then refine, until the error is as asked for, or say why it is not."""
        error = cast(float, self.request.error)
        diagnosis = assessment.diagnosis
        is_extensible = self.request.shard_draws is None and prepared.target.num_shards > 1
        if shortfall(diagnosis, error) and diagnosis.errors and is_extensible and not is_refined:
            more = SHARD_DRAWS_GROWTH * prepared.plan.num_draws
            prepared, posterior = self.sample_and_combine(self.extend(prepared, more))
            assessment = self.assess(prepared, posterior, is_refined=False)
        if shortfall(assessment.diagnosis, error) and not is_refined:
            posterior = self.refine(prepared, posterior, refinement_goal(error))
            assessment = self.assess(prepared, posterior, is_refined=True)
        reason = shortfall(assessment.diagnosis, error)
        settings = {"error_goal": error, "error_goal_reached": int(not reason)}
        posterior = posterior._replace(settings=posterior.settings | settings)
        return prepared, posterior, assessment.with_doubt(reason) if reason else assessment


@contextmanager
def _before_sampling() -> Iterator[None]:
    """Say of an error of a worker that nothing was sampled yet."""
    try:
        yield
    except (TaskError, SlotLost) as error:
        raise ShardError(
            f"nothing was sampled: the checks before sampling failed ({type(error).__name__}: "
            f"{str(error).rstrip('.')}).",
            None,
        ) from error


def _check_combiner(combiner: AbstractCombiner, model: Model, overlap: bool) -> None:
    if overlap and not isinstance(combiner, Variational):
        raise ValueError(
            "overlap=True needs a combiner that optimizes, e.g. vcmc.combiners.Variational(); "
            f"got {combiner!r}."
        )
    combiner.check(model.space)


def _combine(
    prepared: Prepared,
    request: Request,
    draws: ShardDraws,
    display: ProgressDisplay,
    clock: Clock,
) -> Posterior:
    target = prepared.target
    model, space = target.model, target.model.space
    failure = (
        "the shards were sampled, but combining them failed ({error}). Their draws are in this "
        "error's `tree`: vcmc.combine(error.tree, model=model, rows=rows, combiner=...)."
    )
    with _keep_draws(CombineError, failure, lambda: shard_tree(model, draws, prepared.settings)):
        stage = display.stage("combine", None)
        summary = summarize_shards(space, draws.points)
        clock.lap("check")
        shards = Subposteriors(
            summary.points,
            space,
            target,
            request.seed,
            stage.advance,
            draws.learned,
            request.num_draws,
        )
        posterior = combine_shards(
            request.combiner,
            shards,
            summary,
            prior=request.prior,
            stats=draws.stats,
            derived=model.derived,
        )
        stage.finish()
        clock.lap("combine")
    return posterior._replace(
        groups=posterior.groups | {"sample_seconds": draws.seconds} | model.labels.groups,
        notes=prepared.warnings.notes + posterior.notes,
        remarks=(*prepared.warnings.remarks, *posterior.remarks),
        exact=ONE_SHARD if target.num_shards == 1 else "",
    )


def _refine(
    prepared: Prepared, posterior: Posterior, goal: Goal, seed: int, display: ProgressDisplay
) -> Posterior:
    target = prepared.target
    with _keep_posterior("refining", prepared, posterior):
        stage = display.stage("refine", None)
        refined = refine_draws(posterior.points, target, goal, seed, stage.advance)
        stage.finish()
    params = to_params(target.model.space, jnp.asarray(refined.points), target.model.derived)
    return Posterior(
        refined.points,
        posterior.groups | {"posterior": params},
        refined.notes if refined.exact else refined.notes + posterior.notes,
        refined.settings,
        refined.exact,
        () if refined.exact else posterior.remarks,
    )


def _assess(
    prepared: Prepared,
    posterior: Posterior,
    seed: int,
    display: ProgressDisplay,
    is_refined: bool,
) -> Assessment:
    with _keep_posterior("diagnosing", prepared, posterior):
        stage = display.stage("diagnose", None)
        assessment = assess(
            posterior.points,
            prepared.target,
            posterior.notes,
            seed,
            remarks=posterior.remarks,
            exact=posterior.exact,
            is_refined=is_refined,
            source=posterior.source,
        )
        stage.finish()
    return assessment


def _keep_posterior(
    activity: str, prepared: Prepared, posterior: Posterior
) -> AbstractContextManager[None]:
    failure = (
        f"the draws were combined, but {activity} them failed ({{error}}). Combined draws and "
        "shard draws are in this error's `tree`; how good they are is not known."
    )
    settings = prepared.settings | posterior.settings
    return _keep_draws(AssessmentError, failure, lambda: make_tree(posterior.groups, settings))


@contextmanager
def _keep_draws(
    kind: type[ShardError], failure: str, tree: Callable[[], "DataTree"]
) -> Iterator[None]:
    """Turn an error of a stage into one that says which stage it was and carries the draws."""
    try:
        yield
    except Exception as error:
        message = failure.format(error=f"{type(error).__name__}: {error}")
        raise kind(message, tree()) from error
