"""Sample the chains of all shards on an executor, write their blocks, and retry those that fail.

A chain is determined by its key, which is folded by attempt, shard and chain number, and a block
by its first step. So neither the executor, nor a crash and a resume, nor the order in which
chains are sampled can change a draw.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from ..data.cache import ShardCache, Task
from ..diagnostics.shards import chain_fault
from ..errors import Interrupted, ShardError, SlotLost, StoreError, StoreWarning, warn_user
from ..executors import AbstractExecutor
from ..executors.base import Outcome
from ..progress import Stage
from ..results.blocks import join_blocks, pack_block
from ..results.store import ChainFolder, ChainWriter, StateNotStored, Store
from ..samplers.base import (
    BLOCK,
    AbstractSampler,
    Block,
    Chain,
    Checkpoint,
    concatenate_blocks,
    group_by_walker,
)
from ..samplers.state import StateMismatch
from .clock import ChainClock

MAX_ATTEMPTS = 3  # at a chain, each with other random numbers
MAX_NAMED_CHAINS = 5  # in a warning
MAX_DIVERGENT_SHARE = 0.5  # of a chain's steps; above it, the draws say nothing about the shard

ChainIndex = tuple[int, int]
"""A shard, and the number of one of its chains."""


@dataclass(frozen=True)
class Plan:
    """Settings of all chains of a run.

    Attributes:
        sampler: the sampler.
        start: the point at which all chains start.
        key: data of the key from which all others are folded.
        num_draws, thin: as in `infer`.
        prior_power, likelihood_power: the powers of the prior and of the likelihood.
        store: the run directory that blocks are written to, if any.
        attempt: how many attempts failed before this one.
        last_step: the step to stop at for now; None means the end of the chain.
    """

    sampler: AbstractSampler
    start: np.ndarray
    key: np.ndarray
    num_draws: int
    thin: int
    prior_power: float | tuple[float, float]
    likelihood_power: float
    store: Store | None = None
    attempt: int = 0
    last_step: int | None = None

    @property
    def num_steps(self) -> int:
        """Steps of a whole chain."""
        return self.sampler.num_warmup + self.thin * self.num_draws

    @property
    def is_whole(self) -> bool:
        """Whether chains are sampled to their end, not to an earlier step."""
        return (self.last_step or self.num_steps) >= self.num_steps


class ChainResult(NamedTuple):
    """A chain, or its first part.

    Attributes:
        chain: draws and statistics.
        checkpoint: the step that was reached, and the sampler's state there.
        span: times at which the chain began and ended.
        problem: why the chain cannot be used; empty if it can.
        note: why its stored part could not be used; empty if it could.
        store_problem: why it ended early, if it could not be stored.
    """

    chain: Chain
    checkpoint: Checkpoint
    span: tuple[float, float]
    problem: str = ""
    note: str = ""
    store_problem: str = ""


class SampledShards(NamedTuple):
    """The chains of all shards that were sampled, and for the others the reason why not.

    `cause` is an error of one that failed, if any raised one.
    """

    chains: dict[ChainIndex, ChainResult]
    failed: dict[int, str]
    cause: Exception | None = None


class StoreFailed(Exception):
    """Chains could no longer be stored; `chains` holds their parts so far."""

    def __init__(self, message: str, chains: dict[ChainIndex, ChainResult]):
        super().__init__(message)
        self.chains = chains


def sample_shards(
    executor: AbstractExecutor,
    shard_cache: ShardCache,
    plan: Plan,
    stage: Stage,
    begun: SampledShards | None = None,
) -> SampledShards:
    """Sample the chains of all shards, or continue those of `begun`.

    Chains that fail are retried with other random numbers. An error that every chain has is not
    a matter of single shards, and is raised as a `ShardError` without draws. Raise `StoreFailed`
    if chains cannot be stored.
    """
    first_parts = begun.chains if begun and not plan.store else {}
    lost = dict(begun.failed) if begun else {}
    cause = begun.cause if begun else None
    tasks = [
        Task((shard,), number, first_parts.get((shard, number)))
        for shard, number in np.ndindex(shard_cache.num_shards, plan.sampler.num_chains)
        if shard not in lost
    ]
    chains: dict[ChainIndex, ChainResult] = {}
    problems: dict[ChainIndex, str] = {}
    for attempt in range(MAX_ATTEMPTS):
        outcomes = _run_tasks(executor, shard_cache, replace(plan, attempt=attempt), stage, tasks)
        _check_stored(tasks, outcomes, chains)
        errors = [outcome.error for outcome in outcomes]
        for error in errors:
            if isinstance(error, StoreError):
                raise error
        if attempt == 0 and errors and (first := errors[0]) and all(errors):
            raise _no_shard(first, tasks[0].shards[0], plan)
        problems = {}
        for task, (result, error) in zip(tasks, outcomes, strict=True):
            index = task.shards[0], task.chain
            cause = error or cause
            if isinstance(error, SlotLost):
                lost[index[0]] = str(error)
            elif error or result.problem:
                problems[index] = f"{type(error).__name__}: {error}" if error else result.problem
            else:
                chains[index] = result
        tasks = [Task((shard,), number) for shard, number in problems]
        if not tasks:
            break
    failed = lost | {shard: problem for (shard, _), problem in problems.items()}
    sound = {index: chains[index] for index in sorted(chains) if index[0] not in failed}
    return SampledShards(sound, failed, cause if failed else None)


def _check_stored(
    tasks: list[Task], outcomes: list[Outcome], chains: dict[ChainIndex, ChainResult]
) -> None:
    """Raise `StoreFailed` if a chain could not be stored; warn of stored parts that are lost."""
    results = {
        (task.shards[0], task.chain): outcome.result
        for task, outcome in zip(tasks, outcomes, strict=True)
        if outcome.result is not None
    }
    if notes := [
        f"shard {shard}, chain {number}: {result.note}"
        for (shard, number), result in results.items()
        if result.note
    ]:
        chains_text = "stored chain" if len(notes) == 1 else "stored chains"
        named = "; ".join(notes[:MAX_NAMED_CHAINS]) + ("; …" if notes[MAX_NAMED_CHAINS:] else "")
        warn_user(
            f"{len(notes)} {chains_text} could not be continued, so that sampling began again, "
            f"with the same random numbers ({named}).",
            StoreWarning,
        )
    for result in results.values():
        if result.store_problem:
            raise StoreFailed(result.store_problem, chains | results)


def _run_tasks(
    executor: AbstractExecutor,
    shard_cache: ShardCache,
    plan: Plan,
    stage: Stage,
    tasks: list[Task],
) -> list[Outcome]:
    """Run one attempt at some chains, and count the shards that are finished."""
    work = partial(make_chain, plan=plan)
    outcomes = []
    stream = executor.outcomes(work, tasks, shard_cache, stage.advance, one_by_one=True)
    for task, outcome in zip(tasks, stream, strict=True):
        if isinstance(outcome.error, Interrupted):
            raise outcome.error
        outcomes.append(outcome)
        if plan.attempt == 0 and plan.is_whole:
            is_last_chain = task.chain + 1 == plan.sampler.num_chains
            stage.count(task.shards[0] + is_last_chain)
    return outcomes


def _no_shard(error: Exception, shard: int, plan: Plan) -> ShardError:
    """Return the error of a run all of whose chains have failed, from that of the first chain."""
    advice = ""
    if not isinstance(error, SlotLost):
        advice = f" Check the model on its rows: partition.load({shard})."
    if plan.store:
        advice += " Blocks that were drawn are in the run directory, and the same call resumes it."
    message = f"{type(error).__name__}: {str(error).rstrip('.')}."
    failure = ShardError(f"no shard could be sampled. Shard {shard}: {message}{advice}", None)
    failure.__cause__ = error
    return failure


def make_chain(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], plan: Plan
) -> ChainResult:
    """Sample one chain, in any process, or continue the part that the task or the store has."""
    (shard,), number, begun = task.shards, task.chain, task.beginning
    if not plan.store:
        return _sample_chain(shard_cache, task, advance, plan, begun, None)
    folder = plan.store.chain(shard, number, plan.attempt)
    try:
        begun = _stored_part(folder, plan)
        return _sample_chain(shard_cache, task, advance, plan, begun, folder)
    except (StateNotStored, StateMismatch) as reason:
        result = _sample_chain(shard_cache, task, advance, plan, None, folder)
        return result._replace(note=str(reason))


def _sample_chain(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    plan: Plan,
    begun: ChainResult | None,
    folder: ChainFolder | None,
) -> ChainResult:
    """Sample a chain after the part that was begun, and store its blocks in a folder."""
    shard, number = task.shards[0], task.chain
    parts = [begun.chain] if begun else []
    checkpoint = begun.checkpoint if begun else None
    step = checkpoint.step if checkpoint else 0
    clock = ChainClock(begun.span if begun else None)
    stored_steps = step if folder and plan.last_step is None else 0  # to be reported
    problem = ""
    writer = ChainWriter(folder) if folder else None
    last_step = plan.last_step or plan.num_steps
    if step >= last_step:
        advance(stored_steps)
    else:
        density = shard_cache.density(shard, plan.prior_power, plan.likelihood_power)
        key = _chain_key(plan, shard, number, shard_cache.num_shards)
        start = jax.device_put(plan.start)
        blocks = plan.sampler.blocks(density, start, key, plan.num_draws, plan.thin, checkpoint)
        for block in blocks:
            clock.tick()
            checkpoint = block.checkpoint
            parts.append(Chain(block.points, block.stats))
            if writer and (problem := _store(writer, block, step, clock.span, last_step)):
                break
            advance(stored_steps + checkpoint.step - step)
            step, stored_steps = checkpoint.step, 0
            if step >= last_step:
                break
    if step < plan.num_steps:
        # the state travels with the task unless it is in the store
        state = None if folder or checkpoint is None else checkpoint.state
        part = concatenate_blocks(parts)
        return ChainResult(part, Checkpoint(step, state), clock.span, store_problem=problem)
    chain = group_by_walker(concatenate_blocks(parts))
    return ChainResult(chain, Checkpoint(step, None), clock.span, _problem(chain))


def _store(
    writer: ChainWriter, block: Block, step: int, span: tuple[float, float], last_step: int
) -> str:
    """Store a block that begins at a step; return why it could not be stored, if so."""
    end, state = block.checkpoint
    arrays = pack_block(Chain(block.points, block.stats), span)
    try:
        is_whole = end % BLOCK == 0
        writer.write(step // BLOCK, arrays, state if is_whole else None, is_last=end >= last_step)
    except StoreError as error:
        return str(error)
    return ""


def _chain_key(plan: Plan, shard: int, number: int, num_shards: int) -> jax.Array:
    key = jax.random.wrap_key_data(jax.device_put(plan.key))
    for part in (shard + plan.attempt * num_shards, number):
        key = jax.random.fold_in(key, part)
    return key


def _stored_part(folder: ChainFolder, plan: Plan) -> ChainResult | None:
    """Return the stored part of a chain, or None if there is none.

    Raise `StateNotStored` if the chain cannot be continued.
    """
    blocks = folder.blocks()
    if plan.num_draws == sum(len(block["points"]) for block in blocks):
        step, state = plan.num_steps, None
    elif folder.is_new():
        return None
    else:
        num_blocks, state = folder.state(len(blocks))
        blocks, step = blocks[:num_blocks], BLOCK * num_blocks
        num_draws = max(0, step - plan.sampler.num_warmup) // plan.thin
        if num_draws != sum(len(block["points"]) for block in blocks):
            # a process that had lost its driver wrote the short last block of a shorter run
            raise StateNotStored("a block has too few draws")
    span = float(blocks[0]["span"][0]), float(blocks[-1]["span"][1])
    return ChainResult(join_blocks(blocks), Checkpoint(step, state), span)


def _problem(chain: Chain) -> str:
    """Return why a chain cannot be used; an empty string if it can."""
    if reason := chain_fault(chain.points[None]):
        return reason
    if "diverging" in chain.stats:
        share = float(chain.stats["diverging"].mean())
        if share > MAX_DIVERGENT_SHARE:
            return f"{100 * share:.0f} % of a chain's steps diverge"
    return ""
