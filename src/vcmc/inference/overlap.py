"""Optimize on the first half of every chain while the second half is sampled.

The optimizer always sees the first halves, and the end waits for both, so the result does not
depend on which is faster.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from .._runtime import new_pool, wait_for_all
from ..combiners.base import AbstractCombiner, Subposteriors
from ..errors import Interrupted
from ..executors import AbstractExecutor
from ..progress import Stage
from ..samplers.base import BLOCK
from ..target import Target
from .chains import Plan, SampledShards, sample_shards
from .shard_summary import summarize_shards

NUM_PIECES = 4  # of the second half; between them, an executor is free to evaluate


def sample_and_optimize(
    target: Target, plan: Plan, combiner: AbstractCombiner, seed: int, stage: Stage
) -> tuple[SampledShards, Any]:
    """Sample all chains; return them and `Combined.learned` from their first halves.

    The latter is None if a shard or the optimization failed.
    """
    num_warmup, num_steps = plan.sampler.num_warmup, plan.num_steps
    ends = [
        _round_up(num_warmup + (num_steps - num_warmup) * (NUM_PIECES + piece) // (2 * NUM_PIECES))
        for piece in range(NUM_PIECES)
    ]
    first_half = _sample_until(ends[0], target, plan, stage, None)

    def sample_second_half() -> SampledShards:
        sampled = first_half
        for end in [*ends[1:], num_steps]:
            sampled = _sample_until(end, target, plan, stage, sampled)
        return sampled

    pool = new_pool(1, "vcmc-overlap")
    second_half = pool.submit(sample_second_half)
    try:
        learned = _learn(target, plan, combiner, seed, first_half)
        wait_for_all([second_half], lambda: stage.advance(0))
    except BaseException:  # Ctrl-C, or a failure: the chains stop at their next block
        stage.stop()
        raise
    finally:
        pool.shutdown(wait=False)
    return second_half.result(timeout=0), learned


def _round_up(step: int) -> int:
    """Round up to a whole number of blocks."""
    return -(-step // BLOCK) * BLOCK


def _sample_until(
    end: int, target: Target, plan: Plan, stage: Stage, begun: SampledShards | None
) -> SampledShards:
    plan = replace(plan, last_step=min(end, plan.num_steps))
    executor = cast(AbstractExecutor, target.executor)
    return sample_shards(executor, target.shard_cache, plan, stage, begun)


def _learn(
    target: Target, plan: Plan, combiner: AbstractCombiner, seed: int, sampled: SampledShards
) -> Any:
    """Combine the first halves; None if a shard or the optimization failed."""
    if sampled.failed:
        return None
    try:
        return _combine_first_halves(target, plan, combiner, seed, sampled)
    except Interrupted:
        raise
    except Exception:  # it will happen again, and be reported, when all draws are combined
        return None


def _combine_first_halves(
    target: Target, plan: Plan, combiner: AbstractCombiner, seed: int, sampled: SampledShards
) -> Any:
    chains = [result.chain.points for result in sampled.chains.values()]
    draws = np.stack(chains).reshape(target.num_shards, plan.sampler.num_chains, *chains[0].shape)
    space = target.model.space
    summary = summarize_shards(space, draws)
    return combiner(Subposteriors(summary.points, space, target, seed)).learned
