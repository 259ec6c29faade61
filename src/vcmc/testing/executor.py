"""The laws of an executor: results come in the order of the tasks, errors are told, and the answer is that of threads in this process, bit for bit."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.cache import ShardCache, Task
from ..data.partition import Partition, split
from ..errors import DoubtfulWarning
from ..executors import AbstractExecutor, executor_of
from ..inference.pipeline import infer
from ..samplers import NUTS
from .gaussians import regression
from .law import Law, name_of

NUM_SHARDS, NUM_DRAWS, NUM_WARMUP = 5, 50, 100
PAUSE = 0.01  # seconds by which a task is shorter than the one before
TASKS = [Task((shard,)) for shard in range(NUM_SHARDS)]
BAD = 2


def check_executor(executor: Any) -> None:
    """Raise `LawError` unless an executor keeps its laws. It is left open.

    Args:
        executor: the executor, or anything that `infer` takes for one.
    """
    checked = executor_of(executor)
    partition = split(regression().rows, NUM_SHARDS)
    shard_cache = ShardCache(regression().model, partition)
    assert isinstance(partition, Partition)
    _order(checked, shard_cache, partition.sizes)
    _errors(checked, shard_cache)
    _answer(checked)


def _law(executor: AbstractExecutor, says: str, hint: str) -> Law:
    return Law(name_of(executor), says, hint)


def _order(executor: AbstractExecutor, shard_cache: ShardCache, sizes: list[int]) -> None:
    law = _law(
        executor,
        "outcomes come in the order of the tasks, one for each",
        "keep what comes early until its turn, as concurrent.futures' map does.",
    )
    pause = PAUSE

    def slowly(
        shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
    ) -> tuple[int, int]:
        del advance
        (shard,) = task.shards
        time.sleep(pause * (shard_cache.num_shards - 1 - shard))
        return shard, shard_cache.shards[shard].num_rows

    expected = list(enumerate(sizes))
    for one_by_one in (False, True):
        found = [
            each.get()
            for each in executor.outcomes(slowly, TASKS, shard_cache, one_by_one=one_by_one)
        ]
        law.holds(found == expected, f"(shard, number of rows) {expected}", str(found))


def _errors(executor: AbstractExecutor, shard_cache: ShardCache) -> None:
    law = _law(
        executor,
        "an error in a task is told where it belongs, and raised by map",
        "make outcomes with vcmc.executors.base.outcome, which catches errors, and do not raise them yourself.",
    )
    bad = BAD

    def fail(shard_cache: ShardCache, task: Task, advance: Callable[[int], None]) -> None:
        del shard_cache, advance
        if task.shards[0] == bad:
            raise RuntimeError(f"shard {bad} is bad")

    try:
        told = [each.error is not None for each in executor.outcomes(fail, TASKS, shard_cache)]
    except RuntimeError as error:
        raise law.broken("an outcome for each task", f"RuntimeError: {error}") from error
    expected = [task.shards[0] == BAD for task in TASKS]
    law.holds(told == expected, f"errors {expected}", str(told))
    try:
        list(executor.map(fail, TASKS, shard_cache))
    except RuntimeError as error:
        law.holds("is bad" in str(error), "the task's own error", repr(error))
    else:
        raise law.broken("a RuntimeError from map", "none")


def _answer(executor: AbstractExecutor) -> None:
    law = _law(
        executor,
        "draws are those of Local(), to the last bit",
        "do every task once, with the task and the holding that it was given, in 64 bits.",
    )
    expected, found = _draws(None), _draws(executor)
    for group, draws in expected.items():
        law.close(found[group], draws)


def _draws(executor: AbstractExecutor | None) -> dict[str, np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # chains of 50 draws are short
        tree = infer(
            regression().model,
            regression().rows,
            num_shards=NUM_SHARDS,
            num_draws=NUM_DRAWS,
            sampler=NUTS(num_warmup=NUM_WARMUP),
            executor=executor,
            progress=False,
        )
    return {group: tree[group]["beta"].to_numpy() for group in ("posterior", "subposterior")}
