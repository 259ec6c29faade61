"""The second stage of a run: sample every shard, and stop if some could not be sampled."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.params import to_params
from ..diagnostics.shards import broken_shards
from ..errors import ShardError, StoreError
from ..executors import AbstractExecutor
from ..model import Model
from ..progress import ProgressDisplay
from ..results.tree import make_tree
from ..samplers.base import Chain, group_by_walker
from .chains import ChainIndex, ChainResult, SampledShards, StoreFailed, sample_shards
from .overlap import sample_and_optimize
from .preparation import Prepared
from .request import Request

if TYPE_CHECKING:
    from xarray import DataTree

MAX_NAMED_SHARDS = 5  # in an error message


class ShardDraws(NamedTuple):
    """The draws of all shards.

    Attributes:
        points: the draws.
        stats: the sampler's statistics of every draw, axes (shard, chain, draw).
        seconds: when each chain began and ended, counted from the first, axes (shard, chain).
        learned: `Combined.learned` from the first halves of the chains, with `overlap`.
        counts: where shards have different numbers of draws, that of each; their chains are
            concatenated, and padded with NaN.
        batches: the batch of every shard, if rows came in batches.
    """

    points: Float[np.ndarray, "shard chain draw dim"]
    stats: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]
    learned: Any = None
    counts: list[int] | None = None
    batches: Sequence[int] | None = None


def sample(
    prepared: Prepared,
    request: Request,
    display: ProgressDisplay,
    overlap: bool = False,
    where: str = "",
) -> ShardDraws:
    """Sample all shards; the progress says where, if chains start at a mode.

    Raise a `ShardError` with the sound draws if some shards failed, and a `StoreError` with the
    draws made so far if they can no longer be stored.
    """
    target, plan = prepared.target, prepared.plan
    num_chains = plan.sampler.num_chains
    stage = display.stage(
        f"sample {target.num_shards} shards{where}",
        target.num_shards * num_chains * plan.num_steps,
        target.num_shards,
    )
    learned = None
    try:
        if overlap:
            sampled, learned = sample_and_optimize(
                target, plan, request.combiner, request.seed, stage
            )
        else:
            executor = cast(AbstractExecutor, target.executor)
            sampled = sample_shards(executor, target.shard_cache, plan, stage)
    except StoreFailed as failure:
        tree = _tree_so_far(failure.chains, prepared)
        hint = " The draws made so far are in this error's `tree`." if tree is not None else ""
        raise StoreError(f"{failure}{hint}", tree) from failure
    draws = _stack(sampled, num_chains)._replace(learned=learned)
    _check_all_sound(sampled, draws, target.model, prepared.settings)
    return draws


def shard_tree(model: Model, draws: ShardDraws, settings: dict[str, Any]) -> "DataTree":
    """Return a tree of the shards' draws alone."""
    params = to_params(model.space, jnp.asarray(draws.points))
    groups = {"subposterior": params, "sample_stats": draws.stats}
    return make_tree(groups | model.labels.groups, settings)


def _tree_so_far(chains: dict[ChainIndex, ChainResult], prepared: Prepared) -> "DataTree | None":
    """Return the first draws of as many shards as have them, None if no shard has any."""
    num_chains = prepared.plan.sampler.num_chains
    lengths = {
        shard: [len(chains[shard, number].chain.points) for number in range(num_chains)]
        for shard in sorted({shard for shard, _ in chains})
        if all((shard, number) in chains for number in range(num_chains))
    }
    # as many draws per chain as give the most draws in all
    counts = {min(chain_lengths) for chain_lengths in lengths.values()}
    total, num_draws = max(
        ((count * sum(min(each) >= count for each in lengths.values()), count) for count in counts),
        default=(0, 0),
    )
    if not total:
        return None
    shards = [shard for shard, each in lengths.items() if min(each) >= num_draws]
    first = {
        (shard, number): chains[shard, number]._replace(
            chain=_first_draws(chains[shard, number].chain, num_draws)
        )
        for shard in shards
        for number in range(num_chains)
    }
    settings = prepared.settings | {"shard_draws": num_draws, "sound_shards": shards}
    draws = _stack(SampledShards(first, {}), num_chains)
    return shard_tree(prepared.target.model, draws, settings)


def _first_draws(chain: Chain, num_draws: int) -> Chain:
    stats = {name: values[:num_draws] for name, values in chain.stats.items()}
    return group_by_walker(Chain(chain.points[:num_draws], stats))


def _stack(sampled: SampledShards, num_chains: int) -> ShardDraws:
    """Stack the chains of all shards that did not fail."""
    results = list(sampled.chains.values())
    if not results:
        return ShardDraws(np.empty((0, num_chains, 0, 0)), {}, {})
    num_shards = len(results) // num_chains

    def stack(arrays: list[Any]) -> np.ndarray:
        return np.stack(arrays).reshape(num_shards, num_chains, *np.shape(arrays[0]))

    points = stack([result.chain.points for result in results])
    names = results[0].chain.stats
    stats = {name: stack([result.chain.stats[name] for result in results]) for name in names}
    spans = stack([result.span for result in results])
    spans = spans - min(result.span[0] for result in results)
    return ShardDraws(points, stats, {"begin": spans[..., 0], "end": spans[..., 1]})


def _check_all_sound(
    sampled: SampledShards, draws: ShardDraws, model: Model, settings: dict[str, Any]
) -> None:
    shards = sorted({shard for shard, _ in sampled.chains})
    broken = {shards[index]: reason for index, reason in broken_shards(draws.points).items()}
    reasons = dict(sorted((sampled.failed | broken).items()))
    if not reasons:
        return
    indices = [index for index, shard in enumerate(shards) if shard not in reasons]
    tree = None
    if indices:
        stats = {name: values[indices] for name, values in draws.stats.items()}
        sound = ShardDraws(draws.points[indices], stats, {})
        sound_shards = [shards[index] for index in indices]
        tree = shard_tree(model, sound, settings | {"sound_shards": sound_shards})
    named = list(reasons.items())[:MAX_NAMED_SHARDS]
    raise ShardError(
        f"{len(reasons)} of {settings['num_shards']} shards could not be sampled: "
        + "; ".join(f"shard {shard}: {reason}" for shard, reason in named)
        + ". Check the model on the rows of those shards (partition.load(k)), or try a longer "
        "warm-up or fewer shards. The draws of the sound shards are in this error's `tree`.",
        tree,
    ) from sampled.cause
