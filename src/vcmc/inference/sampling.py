"""Sample all shards on an executor, keep the blocks, and try again what fails.

A chain is determined by its key, which is folded by attempt, shard and number of the chain, and a block by the step that it begins with:
so neither the executor, nor a crash and a resume, nor the order in which chains are made can change a draw.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..data.cache import ShardCache, Task
from ..diagnostics.shards import unusable
from ..errors import SlotLost, StoreError
from ..executors import AbstractExecutor
from ..progress import Stage
from ..results.blocks import join_blocks, pack_block
from ..results.store import ChainFolder, Store
from ..samplers.base import BLOCK, AbstractSampler, Chain, Checkpoint, joined, split_walkers

MAX_ATTEMPTS = 3  # at a chain, each with other random numbers
MOSTLY = 0.5  # of a chain's steps: more that diverge, and it is no sample of anything


@dataclass(frozen=True)
class Plan:
    """How chains are made.

    Attributes:
        sampler: what makes them.
        start: where they start.
        key: the data of the key that all others are folded from.
        num_draws, thin: as in `infer`.
        prior_power, row_power: the powers that prior and likelihood are raised to.
        store: where blocks are kept, if they are.
        attempt: how often it was tried before.
        last_step: where to stop for now; nothing means at the end.
    """

    sampler: AbstractSampler
    start: np.ndarray
    key: np.ndarray
    num_draws: int
    thin: int
    prior_power: float
    likelihood_power: float
    store: Store | None = None
    attempt: int = 0
    last_step: int | None = None

    @property
    def num_steps(self) -> int:
        """Steps of a whole chain."""
        return self.sampler.num_warmup + self.thin * self.num_draws


class ChainResult(NamedTuple):
    """A chain, or its beginning: draws, where it got to, when it was begun and ended, and why it cannot be used, if so."""

    chain: Chain
    checkpoint: Checkpoint
    span: tuple[float, float]
    trouble: str = ""


class SampledShards(NamedTuple):
    """The chains of all shards; of those that failed, the reasons."""

    chains: dict[tuple[int, int], ChainResult]
    failed: dict[int, str]


def make_chain(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], plan: Plan
) -> ChainResult:
    """Make one chain, in whatever process, or go on with its beginning, which the task brings along or the store has."""
    (shard,), number, before = task
    folder = plan.store.chain(shard, number, plan.attempt) if plan.store else None
    if folder:
        before = _resumed(folder, plan)
    parts = [before.chain] if before else []
    after = before.checkpoint if before else None
    done = after.step if after else 0
    begin = end = time.time()
    if before:
        begin, end = before.span
    if folder and plan.last_step is None:
        advance(done)
    last = plan.last_step or plan.num_steps
    if done < last:
        density = shard_cache.density(shard, plan.prior_power, plan.likelihood_power)
        key = jax.random.wrap_key_data(jnp.asarray(plan.key))
        for part in (shard + plan.attempt * shard_cache.num_shards, number):
            key = jax.random.fold_in(key, part)
        start = jnp.asarray(plan.start)
        for block in plan.sampler.blocks(density, start, key, plan.num_draws, plan.thin, after):
            end = time.time()
            after = block.checkpoint
            parts.append(Chain(block.points, block.stats))
            if folder:
                folder.write(done // BLOCK, pack_block(parts[-1], (begin, end)), after.state)
            advance(after.step - done)
            done = after.step
            if done >= last:
                break
    complete = done >= plan.num_steps
    if folder and complete:
        folder.finish()
    chain = split_walkers(joined(parts)) if complete else joined(parts)
    state = (
        None if complete or folder or after is None else after.state
    )  # it need not travel if nobody needs it
    return ChainResult(
        chain, Checkpoint(done, state), (begin, end), _trouble(chain) if complete else ""
    )


def _resumed(folder: ChainFolder, plan: Plan) -> ChainResult | None:
    """What the store has of a chain; nothing if there is nothing, or if it cannot be gone on with: then the same draws are made again."""
    blocks = folder.blocks()
    done = min(plan.num_steps, BLOCK * len(blocks))
    state = None if done == plan.num_steps else folder.state(len(blocks))
    if not blocks or (state is None and done < plan.num_steps):
        return None
    span = float(blocks[0]["span"][0]), float(blocks[-1]["span"][1])
    return ChainResult(join_blocks(blocks), Checkpoint(done, state), span)


def _trouble(chain: Chain) -> str:
    """Why a chain cannot be used; nothing if it can."""
    if reason := unusable(chain.points[None]):
        return reason
    if "diverging" in chain.stats and (share := float(chain.stats["diverging"].mean())) > MOSTLY:
        return f"{100 * share:.0f} % of a chain's steps diverge"
    return ""


def sample_shards(
    executor: AbstractExecutor,
    shard_cache: ShardCache,
    plan: Plan,
    stage: Stage,
    begun: SampledShards | None = None,
) -> SampledShards:
    """Chains of all shards, or their beginnings; those that fail are tried again with other random numbers.

    An error that every chain has is no matter of single shards, and is raised.
    """
    before = begun.chains if begun and not plan.store else {}
    lost = dict(begun.failed) if begun else {}
    troubles: dict[tuple[int, int], str] = {}
    chains: dict[tuple[int, int], ChainResult] = {}
    todo = [
        Task((shard,), number, before.get((shard, number)))
        for shard, number in np.ndindex(shard_cache.num_shards, plan.sampler.num_chains)
        if shard not in lost
    ]
    for attempt in range(MAX_ATTEMPTS):
        work = partial(make_chain, plan=replace(plan, attempt=attempt))
        found = []
        for task, each in zip(
            todo,
            executor.outcomes(work, todo, shard_cache, stage.advance, one_by_one=True),
            strict=True,
        ):
            found.append(each)
            if attempt == 0 and (plan.last_step or plan.num_steps) >= plan.num_steps:
                stage.count(task.shards[0] + (task.chain + 1 == plan.sampler.num_chains))
        errors = [outcome.error for outcome in found]
        if attempt == 0 and errors and (first := errors[0]) and all(errors):
            raise first
        for task, (made, error) in zip(todo, found, strict=True):
            place = task.shards[0], task.chain
            troubles.pop(place, None)
            if isinstance(error, StoreError):
                raise error
            if isinstance(error, SlotLost):
                lost[place[0]] = str(error)
            elif error or made.trouble:
                troubles[place] = f"{type(error).__name__}: {error}" if error else made.trouble
            else:
                chains[place] = made
        todo = [Task((shard,), number) for shard, number in troubles]
        if not todo:
            break
    failed = lost | {shard: trouble for (shard, _), trouble in troubles.items()}
    return SampledShards(
        {place: chains[place] for place in sorted(chains) if place[0] not in failed}, failed
    )
