"""From rows to one posterior: split, sample every shard, combine, diagnose."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .. import combiners, executors, samplers
from .._runtime import thread_map
from ..combiners.base import Subposteriors
from ..data.params import to_params
from ..data.partition import check_seed
from ..density import Subposterior
from ..diagnostics.information import ShardFacts, check_information, shard_facts
from ..diagnostics.shards import broken_shards
from ..errors import CombineError, ShardError
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.store import Store
from ..results.tree import make_tree
from ..samplers.hmc import suits
from ..samplers.start import common_start, starts_of
from ..space import Point
from .assembly import (
    Clock,
    as_chains,
    check_kind,
    checked_target,
    groups_of,
    log_densities_of,
    partition_of,
    prior_doubts,
    settled_prior,
)
from .diagnosis import diagnose_draws, stored
from .overlap import sample_and_optimise
from .refinement import diagnose_refined, refine_draws
from .sampling import Plan, SampledShards, sample_shards
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
    sampler: samplers.AbstractSampler | None = None,
    combiner: combiners.AbstractCombiner | None = None,
    executor: Any = None,
    store: str | Path | None = None,
    overlap: bool = False,
    prior: combiners.Prior | None = None,
    refine: bool = False,
    progress: ProgressMode = True,
) -> "DataTree":
    """Sample the posterior of a model on rows that are dealt into shards.

    Args:
        model: a `Model`, for instance from `from_numpyro`.
        rows: a mapping of arrays with one leading axis, a pandas or polars frame, or a `Partition`. Where rows do not fit into memory: the
            path of a Parquet file, of a folder of them, or of a Zarr store, a mapping of memory-mapped arrays, or a function from a shard's
            number to its rows.
        num_shards: number of shards; may be left out if `rows` is a `Partition`.
        seed: seed of everything random: the same seed gives the same draws.
        num_draws: draws of every chain in every shard, and of every chain of the posterior unless it is refined.
        thin: keep one of so many draws: a chain makes `thin` times `num_draws`.
        sampler: how a shard is sampled; by default the model's own sampler, `samplers.HMC()` where shards are large and their density is close to normal, or
            `samplers.NUTS()`.
        combiner: how draws are combined; by default `combiners.Variational()`, a shift and a scale on top of averages.
        executor: where shards are sampled and evaluated: `executors.Local()`, the default, `Processes(n)`, `Dask(address)`, `Ray()`, or
            any `concurrent.futures.Executor` of processes. It does not change the draws.
        store: a run directory. Draws land there as they are made, and the result in the end; the same call goes on from where a stopped
            run was, with the same draws. `vcmc.load(store)` gives the result.
        overlap: optimise on the first half of the draws while the second half is made, and start from there in the end.
        prior: "subposterior" gives every shard the prior to the power 1/K, so that shards multiply
            to the posterior; "partial" gives every shard the full prior, which averages then count K times; "powered"
            gives it the full prior and raises its likelihood to the power K, so that every shard guesses the whole posterior. By
            default it is what the combiner needs.
        refine: turn the combined draws into exact ones, as `vcmc.refine` does, by evaluating all rows more often.
        progress: show progress if standard error is a terminal; "lines" writes plain lines elsewhere.

    Returns:
        An `xarray.DataTree` with the groups `posterior` (chain, draw, …), `subposterior`
        (shard, chain, draw, …), `sample_stats`, `sample_seconds` (when each chain began and ended), `subposterior_rhat` and `subposterior_ess`; where draws are
        averages, `weights` (shard, …) by real coordinate; and where a combiner optimised, the objective and its
        Monte Carlo error by iteration in `optimization`. Estimated errors of means (in posterior sds) and of sds (as shares) are in
        `mean_error` and `sd_error`, their standard errors in `mean_error_se` and `sd_error_se`; `diagnose(tree)` prints them. Its
        attributes record seed, settings, versions and seconds, in `verdict` and `verdict_text` how good the result is, and
        in `warnings` what looks doubtful.
    """
    check_kind(
        "model", model, Model, "vcmc.Model(...), vcmc.from_numpyro(...) or vcmc.from_pymc(...)"
    )
    combiner = combiner or combiners.Variational()
    executor = executors.executor_of(executor)
    _check_arguments(seed, num_draws, thin, combiner)
    prior = settled_prior(combiner, prior)
    if overlap and not isinstance(combiner, combiners.Variational):
        raise ValueError(
            f"overlap=True is for combiners that optimise, such as Variational(); got {combiner!r}."
        )
    if sampler is not None:
        check_kind("sampler", sampler, samplers.AbstractSampler, "vcmc.samplers.NUTS()")
        if not _suited(sampler, prior):
            raise ValueError(
                f"{type(sampler).__name__} cannot raise a likelihood to a power, as prior='powered' asks for. Use NUTS()."
            )
    combiner.check(model.space)
    kept = None if store is None else Store(store)
    partition = partition_of(rows, num_shards, seed, kept.rows if kept else None, progress)
    check_key, start_key, sample_key = jax.random.split(jax.random.key(seed), 3)
    clock = Clock()

    with ProgressDisplay(progress) as bars:
        stage = bars.stage("prepare", 4)
        target = checked_target(model, partition, executor, check_key)
        model, shard_cache = target.model, target.shard_cache
        prior_power = 1 / target.num_shards if prior == "subposterior" else 1.0
        likelihood_power = float(target.num_shards) if prior == "powered" else 1.0
        own = sampler or _suited(model.suited_sampler(shard_cache.shards), prior)
        stage.advance()
        starts = starts_of(target.pilot, start_key)
        places = jnp.asarray(np.stack(starts))
        facts = shard_facts(target, places, with_checksums=kept is not None)
        notes = check_information(target, places, facts)
        stage.advance()
        start = common_start(target, starts) if own is None or own.needs_start else starts[0]
        if sampler is None:
            sampler = _chosen(own, shard_cache.density(0, prior_power, likelihood_power), start)
        settings: dict[str, Any] = {
            "seed": seed,
            "num_shards": target.num_shards,
            "num_draws": num_draws,
            "thin": thin,
            "prior": prior,
            "model": repr(model),
            "sampler": repr(sampler),
        }
        if kept:
            numbers = log_densities_of(target, check_key)
            kept.agree(
                settings | {"log densities": numbers, "shards": [each.checksum for each in facts]}
            )
            kept.save_space(model.space)
        stage.advance()
        clock.lap("start")

        plan = Plan(
            sampler,
            np.asarray(start),
            np.asarray(jax.random.key_data(sample_key)),
            num_draws,
            thin,
            prior_power,
            likelihood_power,
            store=kept,
        )
        if executor.in_process:
            densities = [
                shard_cache.density(shard, prior_power, likelihood_power)
                for shard in _one_per_shape(facts)
            ]
            jobs: list[Callable[[], None]] = [
                partial(sampler.prepare, each, start) for each in densities
            ]
            if combiner.needs.scores:
                jobs.append(target.prepare)
            list(thread_map(lambda job: job(), jobs))
        stage.advance()
        clock.lap("compile")

        stage = bars.stage(
            f"sample {target.num_shards} shards",
            target.num_shards * sampler.num_chains * plan.num_steps,
            target.num_shards,
        )
        if overlap:
            sampled, found = sample_and_optimise(target, plan, combiner, seed, stage)
        else:
            sampled, found = sample_shards(executor, shard_cache, plan, stage), None
        clock.lap("sample")

        settings |= {
            "combiner": repr(combiner),
            "executor": repr(executor),
            "shard_sizes": [each.num_rows for each in facts],
            "curved": [name for name, inside in model.space.items() if not inside.is_real],
        }
        draws, stats, spans = _stacked(sampled, sampler.num_chains)
        _refuse_broken(model, sampled, draws, stats, settings)
        stage = bars.stage("combine", None)
        notes += prior_doubts(combiner, prior, target.num_shards)
        try:
            seen = summarize_shards(model.space, draws)
            clock.lap("check")
            combined = combiner(
                Subposteriors(seen.points, model.space, target, seed, stage.advance, found)
            )
            stage.finish()
            clock.lap("combine")
            groups, doubtful = groups_of(model.space, seen, stats, combined, prior, model)
            groups["sample_seconds"] = spans
            notes += doubtful
            merged = np.asarray(as_chains(combined, seen))
            if refine:
                stage = bars.stage("refine", None)
                refined = refine_draws(merged, target, seed=seed, advance=stage.advance)
                stage.finish()
                notes = refined.notes  # what was doubtful in shards does not matter to these draws
                groups["posterior"] = to_params(
                    model.space, jnp.asarray(refined.draws), model.derived
                )
                settings |= refined.settings
                clock.lap("refine")
            stage = bars.stage("diagnose", None)
            if refine:
                diagnosis = diagnose_refined(refined, target, seed)
            else:
                diagnosis = diagnose_draws(merged, target, notes, seed)
            stage.finish()
            clock.lap("diagnose")
        except Exception as error:
            tree = _sampled(model, draws, stats, settings)
            raise CombineError(
                f"the shards were sampled, but combining them failed ({type(error).__name__}: {error}). The draws are in "
                "this error's `tree`: vcmc.combine(error.tree, model=model, rows=rows, combiner=...).",
                tree,
            ) from error
    more, verdict = stored(diagnosis, notes)
    tree = make_tree(groups | more, settings | clock.seconds | verdict)
    if kept:
        kept.save_tree(groups | more, tree.attrs)
    return tree


def _stacked(
    sampled: SampledShards, num_chains: int
) -> tuple[Float[np.ndarray, "shard chain draw dim"], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Draws, statistics and times of the chains of all shards that did not fail, as arrays (shard, chain, …)."""
    made = list(sampled.chains.values())
    num_shards = len(made) // num_chains

    def stack(arrays: list[Any]) -> np.ndarray:
        return np.stack(arrays).reshape(num_shards, num_chains, *np.shape(arrays[0]))

    if not made:
        return np.empty((0, num_chains, 0, 0)), {}, {}
    stats = {name: stack([each.chain.stats[name] for each in made]) for name in made[0].chain.stats}
    spans = stack([each.span for each in made]) - min(each.span[0] for each in made)
    return (
        stack([each.chain.points for each in made]),
        stats,
        {"begin": spans[..., 0], "end": spans[..., 1]},
    )


def _refuse_broken(
    model: Model,
    sampled: SampledShards,
    draws: Float[np.ndarray, "shard chain draw dim"],
    stats: dict[str, np.ndarray],
    settings: dict[str, Any],
) -> None:
    there = sorted({shard for shard, _ in sampled.chains})
    broken = {there[place]: reason for place, reason in broken_shards(draws).items()}
    reasons = dict(sorted((sampled.failed | broken).items()))
    if not reasons:
        return
    places = [place for place, shard in enumerate(there) if shard not in reasons]
    kept = {name: values[places] for name, values in stats.items()}
    sound = [there[place] for place in places]
    tree = (
        _sampled(model, draws[places], kept, settings | {"sound_shards": sound}) if sound else None
    )
    raise ShardError(
        f"{len(reasons)} of {settings['num_shards']} shards could not be sampled: "
        + "; ".join(f"shard {shard}: {reason}" for shard, reason in list(reasons.items())[:5])
        + ". Look at the model on those shards' rows (partition.load(k)), try a longer warm-up or fewer "
        "shards. The draws of the sound shards are in this error's `tree`.",
        tree,
    )


def _sampled(
    model: Model,
    draws: Float[np.ndarray, "shard chain draw dim"],
    stats: dict[str, np.ndarray],
    settings: dict[str, Any],
) -> "DataTree":
    """A tree of shard draws alone."""
    groups = {"subposterior": to_params(model.space, jnp.asarray(draws)), "sample_stats": stats}
    return make_tree(groups, settings)


def _one_per_shape(facts: Sequence[ShardFacts]) -> list[int]:
    """A shard of every shape."""
    return list({facts[shard].num_padded: shard for shard in range(len(facts))}.values())


def _chosen(own: Any, density: Subposterior, start: Point) -> samplers.AbstractSampler:
    """The model's own sampler; in place of NUTS, HMC where that is the better one."""
    if own is not None and not isinstance(own, samplers.NUTS):
        return own
    return samplers.HMC() if suits(density, start) else own or samplers.NUTS()


def _suited(sampler: Any, prior: combiners.Prior) -> Any:
    """The sampler, unless it cannot do what the prior asks for."""
    return sampler if prior != "powered" or getattr(sampler, "takes_powers", False) else None


def _check_arguments(seed: Any, num_draws: Any, thin: Any, combiner: Any) -> None:
    check_kind("combiner", combiner, combiners.AbstractCombiner, "vcmc.combiners.Consensus()")
    if not isinstance(num_draws, int | np.integer) or num_draws < 4:
        raise ValueError(f"num_draws must be a whole number of 4 or more; got {num_draws!r}.")
    if not isinstance(thin, int | np.integer) or thin < 1:
        raise ValueError(f"thin must be a whole number of 1 or more; got {thin!r}.")
    check_seed(seed)
