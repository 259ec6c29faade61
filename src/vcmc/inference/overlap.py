"""Optimise on the draws that are there while the rest is made.

What is optimised on is always the first half of every chain, and the end waits for both: so the result does not depend on who was faster.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..combiners.base import AbstractCombiner, Subposteriors
from ..errors import Interrupted
from ..executors import AbstractExecutor
from ..progress import Stage
from ..samplers.base import BLOCK
from ..target import Target
from .sampling import Plan, SampledShards, sample_shards
from .shard_summary import summarize_shards

PIECES = 4  # of the second half: between them, an executor can evaluate


def sample_and_optimise(
    target: Target, plan: Plan, combiner: AbstractCombiner, seed: int, stage: Stage
) -> tuple[SampledShards, Any]:
    """All chains, and what the combiner learned from their first halves; nothing if these were too short."""
    warmup, every = plan.sampler.num_warmup, plan.num_steps
    ends = [
        _rounded(warmup + (every - warmup) * (PIECES + piece) // (2 * PIECES))
        for piece in range(PIECES)
    ]
    sampled = _until(ends[0], target, plan, stage, None)

    def rest() -> SampledShards:
        found = sampled
        for end in [*ends[1:], every]:
            found = _until(end, target, plan, stage, found)
        return found

    with ThreadPoolExecutor(1, thread_name_prefix="vcmc-overlap") as pool:
        waiting = pool.submit(rest)
        try:
            learned = _learned(target, plan, combiner, seed, sampled)
        except Interrupted:
            raise
        except (
            Exception
        ):  # whatever it is, it shows again, and is told, when all draws are combined
            learned = None
        return waiting.result(), learned


def _rounded(step: int) -> int:
    return -(-step // BLOCK) * BLOCK


def _until(
    end: int, target: Target, plan: Plan, stage: Stage, begun: SampledShards | None
) -> SampledShards:
    last = min(end, plan.num_steps)
    executor = cast(AbstractExecutor, target.executor)
    return sample_shards(executor, target.shard_cache, replace(plan, last_step=last), stage, begun)


def _learned(
    target: Target, plan: Plan, combiner: AbstractCombiner, seed: int, sampled: SampledShards
) -> Any:
    if sampled.failed:
        return None
    chains = [made.chain.points for made in sampled.chains.values()]
    draws = np.stack(chains).reshape(target.num_shards, plan.sampler.num_chains, *chains[0].shape)
    seen = summarize_shards(target.model.space, draws)
    return combiner(Subposteriors(seen.points, target.model.space, target, seed)).learned
