"""From rows to one posterior: split, sample every shard, combine, diagnose."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from . import combiners, executors, samplers
from .assembly import (
    Clock,
    CombineError,
    ShardError,
    check_kind,
    checked_target,
    groups_of,
    in_chains,
    partition_of,
    prior_doubts,
    settled_prior,
)
from .combiners.base import Subposteriors
from .diagnose import diagnose_draws, stored
from .diagnostics.additivity import check_information
from .diagnostics.shards import broken_shards
from .model import Model, Subposterior
from .partition import Shard, check_seed
from .progress import Bars
from .refine import diagnose_refined, refine_draws
from .result import make_tree, to_params
from .samplers.base import Chain
from .start import common_start, starts_of
from .survey import survey

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
    executor: executors.AbstractExecutor | None = None,
    prior: combiners.Prior | None = None,
    refine: bool = False,
    progress: bool = True,
) -> "DataTree":
    """Sample the posterior of a model on rows that are dealt into shards.

    Args:
        model: a `Model`, for instance from `from_numpyro`.
        rows: a mapping of arrays with one leading axis, a pandas or polars frame, or a `Partition`.
        num_shards: number of shards; may be left out if `rows` is a `Partition`.
        seed: seed of everything random: the same seed gives the same draws.
        num_draws: draws of every chain in every shard, and of every chain of the posterior unless it is refined.
        thin: keep one of so many draws: a chain makes `thin` times `num_draws`.
        sampler: how a shard is sampled; by default the model's own sampler, or `samplers.NUTS()`.
        combiner: how draws are combined; by default `combiners.Variational()`, a shift and a scale on top of averages.
        executor: where shards are sampled; by default `executors.Local()`.
        prior: "subposterior" gives every shard the prior to the power 1/K, so that shards multiply
            to the posterior; "partial" gives every shard the full prior, which averages then count K times; "powered"
            gives it the full prior and raises its likelihood to the power K, so that every shard guesses the whole posterior. By
            default it is what the combiner needs.
        refine: turn the combined draws into exact ones, as `vcmc.refine` does, by evaluating all rows more often.
        progress: show progress if standard error is a terminal.

    Returns:
        An `xarray.DataTree` with the groups `posterior` (chain, draw, …), `subposterior`
        (shard, chain, draw, …), `sample_stats`, `sample_seconds` (when each chain began and ended), `subposterior_rhat` and `subposterior_ess`; where draws are
        averages, `weights` (shard, …) by real coordinate; and where a combiner optimised, the objective and its
        Monte Carlo error by iteration in `optimization`. Estimated errors of means (in posterior sds) and of sds (as shares) are in
        `mean_error` and `sd_error`, their standard errors in `mean_error_se` and `sd_error_se`; `diagnose(tree)` prints them. Its
        attributes record seed, settings, versions and seconds, in `verdict` and `verdict_text` how good the result is, and
        in `warnings` what looks doubtful.
    """
    check_kind("model", model, Model, "vcmc.Model(...) or vcmc.from_numpyro(...)")
    combiner = combiner or combiners.Variational()
    executor = executor or executors.Local()
    _check_arguments(seed, num_draws, thin, combiner, executor)
    prior = settled_prior(combiner, prior)
    if sampler is not None:
        check_kind("sampler", sampler, samplers.AbstractSampler, "vcmc.samplers.NUTS()")
        if not _suited(sampler, prior):
            raise ValueError(
                f"{type(sampler).__name__} cannot raise a likelihood to a power, as prior='powered' asks for. Use NUTS()."
            )
    combiner.check(model.space)
    partition = partition_of(rows, num_shards, seed)
    check_key, start_key, sample_key = jax.random.split(jax.random.key(seed), 3)
    clock = Clock()

    with Bars(progress) as bars:
        stage = bars.stage("check, find a start, compile", 4)
        target = checked_target(model, partition, executor, check_key)
        model, shards = target.densities[0].model, [density.shard for density in target.densities]
        sampler = sampler or _suited(model.suited_sampler(shards), prior) or samplers.NUTS()
        stage.advance()
        starts = starts_of(target.densities[0], start_key)
        notes = check_information(target, jnp.stack(starts))
        stage.advance()
        start = common_start(target, starts) if sampler.needs_start else starts[0]
        stage.advance()
        clock.lap("start")

        power = jnp.asarray(1 / len(shards) if prior == "subposterior" else 1.0)
        if prior == "powered":
            shards = [Shard(shard.rows, len(shards) * shard.weights) for shard in shards]
        densities = [Subposterior(model, shard, power) for shard in shards]
        for density in _one_per_shape(densities):
            sampler.prepare(density, start)
        stage.advance()
        clock.lap("compile")

        tasks = list(np.ndindex(len(shards), sampler.num_chains))
        stage = bars.stage(
            f"sample {len(shards)} shards", len(tasks) * (sampler.num_warmup + thin * num_draws)
        )

        spans = np.empty((len(shards), sampler.num_chains, 2))

        def sample(task: tuple[int, int]) -> Chain:
            shard, chain = task
            key = jax.random.fold_in(jax.random.fold_in(sample_key, shard), chain)
            begin = clock.since_lap()
            drawn = sampler.run(densities[shard], start, key, num_draws, stage.advance, thin)
            spans[task] = begin, clock.since_lap()
            return drawn

        draws, stats = _stack(list(executor.map(sample, tasks)), len(shards), sampler.num_chains)
        clock.lap("sample")

        settings = {
            "seed": seed,
            "num_shards": len(shards),
            "num_draws": num_draws,
            "thin": thin,
            "prior": prior,
            "model": repr(model),
            "sampler": repr(sampler),
            "combiner": repr(combiner),
            "executor": repr(executor),
            "shard_sizes": partition.sizes,
            "curved": [name for name, inside in model.space.items() if not inside.is_real],
        }
        _refuse_broken(model, draws, stats, settings)
        stage = bars.stage("combine", None)
        notes += prior_doubts(combiner, prior, len(shards))
        try:
            seen = survey(model.space, draws)
            clock.lap("check")
            combined = combiner(Subposteriors(seen.points, model.space, target, seed, stage.advance))
            stage.finish()
            clock.lap("combine")
            groups, doubtful = groups_of(model.space, seen, stats, combined, prior, model)
            groups["sample_seconds"] = {"begin": spans[..., 0], "end": spans[..., 1]}
            notes += doubtful
            merged = np.asarray(in_chains(combined, seen))
            if refine:
                stage = bars.stage("refine", None)
                refined = refine_draws(merged, target, seed=seed, advance=stage.advance)
                stage.finish()
                notes = refined.notes  # what was doubtful in shards does not matter to these draws
                groups["posterior"] = to_params(model.space, jnp.asarray(refined.draws), model.derived)
                settings |= refined.settings
                clock.lap("refine")
                diagnosis = diagnose_refined(refined, target, seed)
            else:
                diagnosis = diagnose_draws(merged, target, notes, seed)
            clock.lap("diagnose")
        except Exception as error:
            tree = _sampled(model, draws, stats, settings)
            raise CombineError(
                f"the shards were sampled, but combining them failed ({type(error).__name__}: {error}). The draws are in "
                "this error's `tree`: vcmc.combine(error.tree, model=model, rows=rows, combiner=...).",
                tree,
            ) from error
    more, verdict = stored(diagnosis, notes)
    return make_tree(groups | more, settings | clock.seconds | verdict)


def _stack(
    chains: Sequence[Chain], num_shards: int, num_chains: int
) -> tuple[Float[np.ndarray, "shard chain draw dim"], dict[str, np.ndarray]]:
    """Chains in order of shard and chain, as arrays (shard, chain, draw, …)."""

    def stack(arrays: list[np.ndarray]) -> np.ndarray:
        return np.stack(arrays).reshape(num_shards, num_chains, *arrays[0].shape)

    points = stack([chain.points for chain in chains])
    return points, {name: stack([chain.stats[name] for chain in chains]) for name in chains[0].stats}


def _refuse_broken(
    model: Model,
    draws: Float[np.ndarray, "shard chain draw dim"],
    stats: dict[str, np.ndarray],
    settings: dict[str, Any],
) -> None:
    reasons = broken_shards(draws)
    if not reasons:
        return
    sound = [shard for shard in range(len(draws)) if shard not in reasons]
    kept = {name: values[sound] for name, values in stats.items()}
    tree = _sampled(model, draws[sound], kept, settings | {"sound_shards": sound})
    raise ShardError(
        f"{len(reasons)} of {len(draws)} shards could not be sampled: "
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


def _one_per_shape(densities: Sequence[Subposterior]) -> list[Subposterior]:
    return list({density.shard.weights.shape: density for density in densities}.values())


def _suited(sampler: Any, prior: combiners.Prior) -> Any:
    """The sampler, unless it cannot do what the prior asks for."""
    return sampler if prior != "powered" or getattr(sampler, "takes_powers", False) else None


def _check_arguments(seed: Any, num_draws: Any, thin: Any, combiner: Any, executor: Any) -> None:
    check_kind("combiner", combiner, combiners.AbstractCombiner, "vcmc.combiners.Consensus()")
    check_kind("executor", executor, executors.AbstractExecutor, "vcmc.executors.Local()")
    if not isinstance(num_draws, int | np.integer) or num_draws < 4:
        raise ValueError(f"num_draws must be a whole number of 4 or more; got {num_draws!r}.")
    if not isinstance(thin, int | np.integer) or thin < 1:
        raise ValueError(f"thin must be a whole number of 1 or more; got {thin!r}.")
    check_seed(seed)
