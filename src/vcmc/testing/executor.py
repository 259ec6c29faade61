"""The laws of an executor.

Outcomes are in the order of the tasks; errors are reported with the task that raised them; and
draws, also of the local parameters of groups, are bit-identical to those of the local executor. The
loss of a process is noticed.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.cache import ShardCache, Task
from ..data.partition import Partition, split
from ..errors import DoubtfulWarning, SlotLost
from ..executors import AbstractExecutor, executor_of
from ..inference.pipeline import infer
from ..samplers import NUTS
from .gaussians import Regression, VaryingMeans, regression, varying_means
from .law import Law, name_of

NUM_SHARDS, NUM_DRAWS, NUM_WARMUP = 5, 50, 100
PAUSE_SECONDS = 0.01  # by which each task is shorter than the one before
TASKS = [Task((shard,)) for shard in range(NUM_SHARDS)]
FAILING_SHARD = 2
LOSS_SECONDS = 600.0  # in which the loss of processes must be noticed: longer than all limits


def check_executor(executor: Any, kills: bool = False) -> None:
    """Raise `LawError` unless an executor obeys the laws of executors.

    Args:
        executor: the executor, or anything that `infer` accepts as one. It is not closed.
        kills: check, too, that the loss of a process is noticed, for executors of processes. It
            kills several of them, so that a pool cannot be used any more.
    """
    wrapped = executor_of(executor)
    partition = split(regression().rows, NUM_SHARDS)
    shard_cache = ShardCache(regression().model, partition)
    assert isinstance(partition, Partition)
    _check_order(wrapped, shard_cache, partition.sizes)
    _check_errors(wrapped, shard_cache)
    _check_draws(wrapped)
    if kills and not wrapped.in_process:
        _check_loss(wrapped, shard_cache)


def _law(executor: AbstractExecutor, statement: str, hint: str) -> Law:
    return Law(name_of(executor), statement, hint)


def _check_order(executor: AbstractExecutor, shard_cache: ShardCache, sizes: list[int]) -> None:
    law = _law(
        executor,
        "outcomes are in the order of the tasks, one for each",
        "hold early outcomes back until their turn, as Executor.map of concurrent.futures does.",
    )
    pause = PAUSE_SECONDS

    def sleep_and_count(
        shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
    ) -> tuple[int, int]:
        del advance
        (shard,) = task.shards
        time.sleep(pause * (shard_cache.num_shards - 1 - shard))
        return shard, shard_cache.shards[shard].num_rows

    expected = list(enumerate(sizes))
    for one_by_one in (False, True):
        results = [
            outcome.get()
            for outcome in executor.outcomes(
                sleep_and_count, TASKS, shard_cache, one_by_one=one_by_one
            )
        ]
        law.holds(results == expected, f"(shard, number of rows) {expected}", str(results))


def _check_errors(executor: AbstractExecutor, shard_cache: ShardCache) -> None:
    law = _law(
        executor,
        "an error in a task is in its own outcome, and map raises it",
        "run tasks with vcmc.executors.base.run_task, which catches errors.",
    )
    failing = FAILING_SHARD

    def fail(shard_cache: ShardCache, task: Task, advance: Callable[[int], None]) -> None:
        del shard_cache, advance
        if task.shards[0] == failing:
            raise RuntimeError(f"shard {failing} failed on purpose")

    try:
        failed = [
            outcome.error is not None for outcome in executor.outcomes(fail, TASKS, shard_cache)
        ]
    except RuntimeError as error:
        raise law.broken("an outcome for each task", f"RuntimeError: {error}") from error
    expected = [task.shards[0] == FAILING_SHARD for task in TASKS]
    law.holds(failed == expected, f"errors {expected}", str(failed))
    try:
        list(executor.map(fail, TASKS, shard_cache))
    except RuntimeError as error:
        law.holds("on purpose" in str(error), "the error of the task", repr(error))
    else:
        raise law.broken("a RuntimeError from map", "none")


def _check_loss(executor: AbstractExecutor, shard_cache: ShardCache) -> None:
    law = _law(
        executor,
        "a lost process is not awaited forever, and its task ends in SlotLost",
        "wait for a limited time, look whether the process is alive, and raise SlotLost.",
    )

    def die(shard_cache: ShardCache, task: Task, advance: Callable[[int], None]) -> None:
        del shard_cache, task, advance
        os.kill(os.getpid(), signal.SIGKILL)

    errors: list[Exception | None] = []

    def lose() -> None:
        outcomes = executor.outcomes(die, TASKS[:1], shard_cache)
        errors.extend(outcome.error for outcome in outcomes)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    thread.join(LOSS_SECONDS)
    law.holds(bool(errors), f"an outcome within {LOSS_SECONDS:.0f} s", "none")
    law.holds(isinstance(errors[0], SlotLost), "SlotLost", repr(errors[0]))


def _check_draws(executor: AbstractExecutor) -> None:
    law = _law(
        executor,
        "draws are those of Local(), to the last bit",
        "run every task exactly once, with its own task and shard cache, in 64-bit precision.",
    )
    problems = (
        (regression(), {"posterior": "beta", "subposterior": "beta"}),
        (varying_means(), {"posterior": "alpha"}),
    )
    for problem, names in problems:
        expected, actual = _draws(problem, names, None), _draws(problem, names, executor)
        for group, draws in expected.items():
            law.close(actual[group], draws)


def _draws(
    problem: Regression | VaryingMeans, names: dict[str, str], executor: AbstractExecutor | None
) -> dict[str, np.ndarray]:
    """Return the draws of one parameter for each group of the tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # chains of 50 draws are short
        tree = infer(
            problem.model,
            problem.rows,
            num_shards=NUM_SHARDS,
            shard_draws=NUM_DRAWS,
            sampler=NUTS(num_warmup=NUM_WARMUP),
            executor=executor,
            progress=False,
        )
    return {group: tree[group][name].to_numpy() for group, name in names.items()}
