"""The verb `infer`: prepare, sample, combine, refine if asked to, assess."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

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
from .preparation import (
    Prepared,
    Request,
    as_partition,
    checked_target,
    choose_shards,
    prepare,
)
from .refinement import refine_draws
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
    num_draws: int = 1000,
    thin: int = 1,
    sampler: AbstractSampler | None = None,
    combiner: AbstractCombiner | None = None,
    executor: Any = None,
    store: str | Path | None = None,
    overlap: bool = False,
    prior: Prior | None = None,
    refine: bool = False,
    progress: ProgressMode = True,
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
        num_draws: draws of every chain in every shard, and of every chain of the posterior
            unless it is refined.
        thin: keep every `thin`-th draw: a chain makes `thin * num_draws`.
        sampler: how a shard is sampled; by default the model's own sampler, `samplers.HMC()`
            where the density of the first shard is close to normal, or `samplers.NUTS()`.
        combiner: how draws are combined; by default `combiners.Variational()`, a shift and a
            scale on top of averages.
        executor: where shards are sampled and evaluated: `executors.Local()`, the default,
            `Processes(n)`, `Dask(address)`, `Ray()`, or any `concurrent.futures.Executor` of
            processes. It does not change the draws.
        store: a run directory. Draws are written to it as they are made, and the result at the
            end; the same call resumes a run that was stopped, with the same draws, and returns
            the result of one that has finished. A larger `num_draws` continues the chains.
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

    Returns:
        An `xarray.DataTree` with the groups `posterior` (chain, draw, …), `subposterior`
        (shard, chain, draw, …), `sample_stats`, `sample_seconds` (when each chain began and
        ended), `subposterior_rhat` and `subposterior_ess`; where draws are averages, `weights`
        (shard, …) by unconstrained coordinate; and where a combiner optimized, the objective and
        its Monte Carlo error by iteration in `optimization`. Estimated errors of means (in
        posterior sds) and of sds (as shares) are in `mean_error` and `sd_error`, their standard
        errors in `mean_error_se` and `sd_error_se`; `diagnose(tree)` prints them. Attributes
        record seed, settings, space, versions and seconds, the verdict in `verdict` and
        `verdict_text`, and all warnings in `warnings`.
    """
    check_model(model)
    request = Request.checked(
        seed=seed,
        num_draws=num_draws,
        thin=thin,
        sampler=sampler,
        combiner=Variational() if combiner is None else combiner,
        executor=executor,
        prior=prior,
        store=store,
    )
    _check_combiner(request.combiner, model, overlap)
    with locked(request.store.folder) if request.store else nullcontext():
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
        draws = sample(prepared, request, display, overlap)
        clock.lap("sample")
        posterior = _combine(prepared, request, draws, display, clock)
        if refine:
            posterior = _refine(prepared, posterior, request.seed, display)
            clock.lap("refine")
        assessment = _assess(prepared, posterior, request.seed, display, is_refined=refine)
        clock.lap("diagnose")
    settings = prepared.settings | posterior.settings | clock.seconds | {"exact": posterior.exact}
    tree = result_tree(posterior.groups, settings, assessment)
    if record:
        record.save(posterior.groups | assessment.groups, tree)
    return tree


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
            summary.points, space, target, request.seed, stage.advance, draws.learned
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
    prepared: Prepared, posterior: Posterior, seed: int, display: ProgressDisplay
) -> Posterior:
    target = prepared.target
    with _keep_posterior("refining", prepared, posterior):
        stage = display.stage("refine", None)
        refined = refine_draws(posterior.points, target, seed=seed, advance=stage.advance)
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
