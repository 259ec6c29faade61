"""From rows to one posterior: split, sample every shard, combine."""

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import combiners, executors, samplers
from .aggregators.combinatorial import with_common_labels
from .combiners.base import Subposteriors
from .diagnostics.additivity import check_additivity, check_information, check_labels
from .diagnostics.shards import broken_shards, doubts, shard_ess, shard_rhat
from .draws import named_draws, space_of
from .model import Model, Subposterior
from .partition import Partition, check_seed, split
from .progress import Bars
from .result import by_coordinate, make_tree, to_params, to_points
from .samplers.base import Chain
from .space import Product, Space
from .start import common_start, random_starts
from .target import Target

if TYPE_CHECKING:
    from xarray import DataTree

Prior = Literal["subposterior", "partial"]


PARTIAL = (
    "partial posteriors hold the prior once in every shard, and averages of them hold it as often: the combined "
    "posterior is too narrow and too close to the prior, the more so the more shards and the stronger the prior. "
    'Use prior="subposterior" unless the combiner corrects for this.'
)


class DoubtfulWarning(UserWarning):
    """Something in a result looks doubtful. The result's `warnings` attribute has the same text."""


class ShardError(RuntimeError):
    """Some shards could not be sampled. `tree` holds the draws of the others."""

    def __init__(self, message: str, tree: "DataTree"):
        super().__init__(message)
        self.tree = tree


class CombineError(ShardError):
    """All shards were sampled, but could not be combined. `tree` holds their draws."""


def infer(
    model: Model,
    rows: Any,
    *,
    num_shards: int | None = None,
    seed: int = 0,
    num_draws: int = 1000,
    sampler: samplers.AbstractSampler | None = None,
    combiner: combiners.AbstractCombiner | None = None,
    executor: executors.AbstractExecutor | None = None,
    prior: Prior = "subposterior",
    progress: bool = True,
) -> "DataTree":
    """Sample the posterior of a model on rows that are dealt into shards.

    Args:
        model: a `Model`, for instance from `from_numpyro`.
        rows: a mapping of arrays with one leading axis, a pandas or polars frame, or a `Partition`.
        num_shards: number of shards; may be left out if `rows` is a `Partition`.
        seed: seed of everything random: the same seed gives the same draws.
        num_draws: draws of every chain in every shard, and of every chain of the posterior.
        sampler: how a shard is sampled; by default the model's own sampler, or `samplers.NUTS()`.
        combiner: how draws are combined; by default `combiners.Consensus()`.
        executor: where shards are sampled; by default `executors.Local()`.
        prior: "subposterior" gives every shard the prior to the power 1/K, so that shards multiply
            to the posterior; "partial" gives every shard the full prior, which averages then count K times.
        progress: show progress if standard error is a terminal.

    Returns:
        An `xarray.DataTree` with the groups `posterior` (chain, draw, …), `subposterior`
        (shard, chain, draw, …), `sample_stats`, `subposterior_rhat` and `subposterior_ess`; where draws are
        averages, `weights` (shard, …) by real coordinate; and where a combiner optimised, the objective and its
        Monte Carlo error by iteration in `optimization`. Its attributes record seed, settings, versions and seconds, and in `warnings` what looks doubtful.
    """
    _check_kind("model", model, Model, "vcmc.Model(...) or vcmc.from_numpyro(...)")
    combiner = combiner or combiners.Consensus()
    executor = executor or executors.Local()
    _check_arguments(seed, num_draws, prior, combiner, executor)
    if sampler is not None:
        _check_kind("sampler", sampler, samplers.AbstractSampler, "vcmc.samplers.NUTS()")
    combiner.check(model.space)
    partition = _partition(rows, num_shards, seed)
    check_key, start_key, sample_key = jax.random.split(jax.random.key(seed), 3)
    clock = Clock()

    with Bars(progress) as bars:
        stage = bars.stage("check, find a start, compile", 4)
        target = _checked_target(model, partition, executor, check_key)
        model, shards = target.densities[0].model, [density.shard for density in target.densities]
        sampler = sampler or model.suited_sampler(shards) or samplers.NUTS()
        stage.advance()
        starts = model.starts(shards[0], start_key) or random_starts(target.densities[0], start_key)
        notes = check_information(target, jnp.stack(starts))
        stage.advance()
        start = common_start(target, starts) if sampler.needs_start else starts[0]
        stage.advance()
        clock.lap("start")

        power = jnp.asarray(1 / len(shards) if prior == "subposterior" else 1.0)
        densities = [Subposterior(model, shard, power) for shard in shards]
        for density in _one_per_shape(densities):
            sampler.prepare(density, start)
        stage.advance()
        clock.lap("compile")

        tasks = list(np.ndindex(len(shards), sampler.num_chains))
        stage = bars.stage(f"sample {len(shards)} shards", len(tasks) * (sampler.num_warmup + num_draws))

        def sample(task: tuple[int, int]) -> Chain:
            shard, chain = task
            key = jax.random.fold_in(jax.random.fold_in(sample_key, shard), chain)
            return sampler.run(densities[shard], start, key, num_draws, stage.advance)

        draws, stats = _stack(list(executor.map(sample, tasks)), len(shards), sampler.num_chains)
        clock.lap("sample")

        settings = {
            "seed": seed,
            "num_shards": len(shards),
            "num_draws": num_draws,
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
        if prior == "partial" and len(shards) > 1 and not combiner.needs_target:
            notes.append(PARTIAL)
        try:
            combined = combiner(Subposteriors(_by_shard(draws), model.space, target, seed, stage.advance))
        except Exception as error:
            tree = _sampled(model, draws, stats, settings)
            raise CombineError(
                f"the shards were sampled, but combining them failed ({type(error).__name__}: {error}). The draws are in "
                "this error's `tree`: vcmc.combine(error.tree, model=model, rows=rows, combiner=...).",
                tree,
            ) from error
        stage.finish()
        clock.lap("combine")

    groups, doubtful = _groups(model.space, draws, stats, combined, model)
    clock.lap("check")
    return make_tree(groups, settings | clock.seconds | {"warnings": _warn(notes + doubtful)})


def combine(
    draws: Any,
    *,
    combiner: combiners.AbstractCombiner | None = None,
    space: Mapping[str, Space] | None = None,
    model: Model | None = None,
    rows: Any = None,
    executor: executors.AbstractExecutor | None = None,
    seed: int = 0,
    progress: bool = True,
) -> "DataTree":
    """Combine draws of shards that were made elsewhere.

    Args:
        draws: a mapping from names to arrays (shard, draw, …), or an xarray Dataset with dimensions
            (shard, draw, …) or (shard, chain, draw, …), or a DataTree whose `subposterior` is one.
        combiner: how draws are combined; by default `combiners.Consensus()`.
        space: where the parameters live. Parameters that are not named are taken as real. Draws are
            combined in real coordinates: say `{"scale": vcmc.Positive()}`, and the combined draws of
            `scale` are positive.
        model: the model of all rows, for combiners that need the full-data log density; it says `space`, too.
        rows: all rows, as `infer` takes them.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of what is random in the combiner.
        progress: show progress if standard error is a terminal.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> tree = combine({"beta": draws})
    >>> dict(tree["posterior"].sizes)
    {'chain': 1, 'draw': 500, 'beta_dim_0': 2}
    """
    combiner = combiner or combiners.Consensus()
    _check_kind("combiner", combiner, combiners.AbstractCombiner, "vcmc.combiners.Consensus()")
    executor = executor or executors.Local()
    _check_kind("executor", executor, executors.AbstractExecutor, "vcmc.executors.Local()")
    check_seed(seed)
    if model is not None:
        _check_kind("model", model, Model, "vcmc.Model(...) or vcmc.from_numpyro(...)")
        if space is not None:
            raise ValueError(
                "combine takes space= or a model, which says where its parameters live; got both."
            )
        space = model.space
    arrays = named_draws(draws, space)
    if model is not None:
        if missing := set(model.space) - set(arrays):
            raise ValueError(
                f"the model has the parameters {list(model.space)}, but there are no draws of {sorted(missing)}."
            )
        arrays = {name: arrays[name] for name in model.space}  # its order is that of a point's coordinates
    product = space_of(arrays, space or {})
    num_shards, num_chains, num_draws = next(iter(arrays.values())).shape[:3]
    flat = {name: array.reshape(-1, *array.shape[3:]) for name, array in arrays.items()}
    points = np.asarray(to_points(product, flat)).reshape(num_shards, num_chains, num_draws, -1)
    settings = {"num_shards": num_shards, "num_draws": num_draws, "seed": seed, "combiner": repr(combiner)}
    if reasons := broken_shards(points):
        raise ValueError(
            "every shard's draws must vary, be finite and lie inside the parameter's space; got "
            + "; ".join(f"shard {shard}: {reason}" for shard, reason in reasons.items())
            + ". Remove or redo these shards, and check space=."
        )
    clock = Clock()
    with Bars(progress) as bars:
        stage = bars.stage("combine", None)
        target = _target(model, rows, num_shards, seed, executor)
        combined = combiner(Subposteriors(_by_shard(points), product, target, seed, stage.advance))
        stage.finish()
        clock.lap("combine")
    groups, notes = _groups(product, points, {}, combined, model)
    clock.lap("check")
    return make_tree(groups, settings | clock.seconds | {"warnings": _warn(notes)})


def _target(
    model: Model | None, rows: Any, num_shards: int, seed: int, executor: executors.AbstractExecutor
) -> Target | None:
    if (model is None) != (rows is None):
        raise ValueError("combine takes a model and its rows together, or neither; got only one of them.")
    if model is None:
        return None
    partition = _partition(rows, None if isinstance(rows, Partition) else num_shards, seed)
    return _checked_target(model, partition, executor, jax.random.key(seed))


def _checked_target(
    model: Model, partition: Partition, executor: executors.AbstractExecutor, key: Array
) -> Target:
    """The target of a model that has its point estimates, and whose log density was seen to be what it must be."""
    shards = [partition.load(shard) for shard in range(partition.num_shards)]
    model = model.fitted(shards)
    somewhere = 0.5 * jax.random.normal(key, (model.space.dim,))
    check_additivity(model, shards, somewhere)
    check_labels(model, shards[0], somewhere)
    return Target(model, shards, executor)


class Clock:
    """Seconds spent in each stage, by the name `seconds_<stage>`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[f"seconds_{name}"] = round(now - self._last, 4)
        self._last = now


def _by_shard(draws: Float[np.ndarray, "shard chain draw dim"]) -> Float[Array, "shard all dim"]:
    """Draws with the chains of a shard one after the other."""
    return jnp.asarray(draws.reshape(draws.shape[0], -1, draws.shape[3]))


def _groups(
    space: Product,
    draws: Float[np.ndarray, "shard chain draw dim"],
    stats: dict[str, np.ndarray],
    combined: combiners.Combined,
    model: Model | None = None,
) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """The groups of a result, and what looks doubtful in it."""
    subposterior = to_params(space, jnp.asarray(draws))
    rhat, ess = shard_rhat(subposterior), shard_ess(subposterior)
    merged = combined.draws.reshape(draws.shape[1:])
    groups = {
        "posterior": to_params(space, merged, model.derived if model else None),
        "subposterior": subposterior,
        "sample_stats": stats,
        "subposterior_rhat": rhat,
        "subposterior_ess": ess,
        "weights": {} if combined.weights is None else by_coordinate(space, combined.weights),
        "optimization": combined.trace,
    }
    compared = with_common_labels(space, np.asarray(_by_shard(draws))).reshape(draws.shape)
    notes = combined.notes + doubts(compared, rhat, ess, stats)
    return {name: group for name, group in groups.items() if group}, notes


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


def _partition(rows: Any, num_shards: int | None, seed: int) -> Partition:
    if isinstance(rows, Partition):
        if num_shards not in (None, rows.num_shards):
            raise ValueError(
                f"num_shards must be left out or equal that of the partition ({rows.num_shards}); got "
                f"{num_shards}."
            )
        return rows
    if num_shards is None:
        raise ValueError(
            "infer needs num_shards, such as num_shards=20, unless rows is a Partition; got None."
        )
    return split(rows, num_shards, seed=seed)


def _check_arguments(seed: Any, num_draws: Any, prior: Any, combiner: Any, executor: Any) -> None:
    _check_kind("combiner", combiner, combiners.AbstractCombiner, "vcmc.combiners.Consensus()")
    _check_kind("executor", executor, executors.AbstractExecutor, "vcmc.executors.Local()")
    if not isinstance(num_draws, int | np.integer) or num_draws < 4:
        raise ValueError(f"num_draws must be a whole number of 4 or more; got {num_draws!r}.")
    check_seed(seed)
    if prior not in ("subposterior", "partial"):
        raise ValueError(f"prior must be 'subposterior' or 'partial'; got {prior!r}.")


def _check_kind(argument: str, value: Any, kind: type, example: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{argument} must be such as {example}; got {value!r}.")


def _warn(notes: list[str]) -> list[str]:
    for note in notes:
        warnings.warn(note, DoubtfulWarning, stacklevel=3)
    return notes
