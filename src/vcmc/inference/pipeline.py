"""The verb `infer`: prepare, sample, combine, refine if asked to, assess."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from .._compile_cache import use_compile_cache
from ..combiners import AbstractCombiner, Prior, Variational
from ..data.shard import AbstractPartition
from ..errors import ShardError, SlotLost, TaskError
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.lock import locked
from ..results.states import check_not_reduced
from ..samplers import AbstractSampler
from .arguments import check_model
from .assessment import result_tree
from .clock import Clock
from .kept_rows import keep_rows
from .local_stage import check_mode
from .local_tasks import LocalsMode
from .model_rows import model_rows
from .partitioning import as_partition, choose_shards
from .preparation import checked_target, prepare
from .request import Request
from .run_record import RunRecord
from .shard_count import TooManyShards
from .stages import Stages

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
    weights: str | None = None,
    refine: bool = False,
    locals: LocalsMode | None = None,  # noqa: A002
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
            one that the combiner needs. Priors are tempered in unconstrained coordinates, except
            for a model with groups, where that of the spread of few groups would have a long tail.
        weights: the column of rows with their weights, which multiply log likelihoods: a row of
            weight 3 counts as three rows. The model does not see the column.
        refine: turn the combined draws into exact ones, as `vcmc.refine` does, by evaluating
            all rows more often.
        locals: for a model with groups, how local parameters are reported: "draws" (in the
            posterior, one for each draw), "summary" (mean, sd and quantiles in the groups
            `local_mean`, `local_sd`, `local_q05`, `local_q50` and `local_q95`), "file" (all draws
            in Parquet files of the run directory, which `vcmc.load_locals` reads, and the summary
            in the result) or "none"; by default draws, unless they take more than 256 MB.
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
    check_mode(locals, has_store=store is not None)
    request = Request.checked(
        seed=seed,
        num_draws=num_draws,
        shard_draws=shard_draws,
        error=error,
        thin=thin,
        sampler=sampler,
        combiner=combiner,
        executor=executor,
        prior=prior,
        store=store,
        weights=weights,
    )
    _check_combiner(request.combiner, model, overlap)
    lock = locked(request.store.folder) if request.store else nullcontext()
    with use_compile_cache(compile_cache), lock:
        if request.store:
            check_not_reduced(request.store)
        partition, request = choose_shards(model, rows, num_shards, request, progress)
        options: Any = {
            "overlap": overlap,
            "refine": refine,
            "locals_mode": locals,
            "progress": progress,
        }
        try:
            return _run(model, partition, request, **options)
        except TooManyShards as too_many:
            fewer = too_many.fewer
        rows = model_rows(rows, model, weights)
        partition = as_partition(rows, fewer.number, seed, local=model.local, weights=weights)
        request = replace(request, num_shards_reason=fewer.reason, may_reduce_shards=False)
        return _run(model, partition, request, **options)


def _run(
    model: Model,
    partition: AbstractPartition,
    request: Request,
    *,
    overlap: bool,
    refine: bool,
    locals_mode: LocalsMode | None,
    progress: ProgressMode,
) -> "DataTree":
    """Run all stages, or return the result of a run directory that answers the same request."""
    clock = Clock()
    with ProgressDisplay(progress) as display:
        check_key, *_ = jax.random.split(jax.random.key(request.seed), 3)
        with _before_sampling():
            target = checked_target(model, partition, request.executor, check_key)
            options = {"overlap": overlap, "refine": refine, "locals": locals_mode}
            record = RunRecord.opened(target, request, options)
            if record and (result := record.result()) is not None:
                return result
            prepared = prepare(target, request, display, clock, record)
            if request.store:
                keep_rows(request.store, partition, model.levels)
        stages = Stages(request, record, display, clock, overlap)
        prepared, posterior = stages.sample_and_combine(prepared)
        if refine:
            posterior = stages.refine(prepared, posterior)
        assessment = stages.assess(prepared, posterior, is_refined=refine)
        if request.error is not None:
            prepared, posterior, assessment = stages.improve(
                prepared, posterior, assessment, refine
            )
        posterior, assessment = stages.draw_locals(prepared, posterior, assessment, locals_mode)
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
