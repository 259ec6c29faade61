"""The interface of executors, which run work on shards and must not change the answer.

Work is a function of a `ShardCache`, which has the model and loads shards, and of a task, which
names the shards. To write an executor, subclass `AbstractExecutor` and define `outcomes`. For an
executor that sends work to other processes, subclass `AbstractSlots` (`slots.py`) and define its
slots instead. `vcmc.testing.check_executor` tests the laws of executors, and `docs/extending.md`
has an example.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .._runtime import num_cores
from ..data.cache import ShardCache, Task, Work
from ..errors import TaskError

MAX_NAMED_SHARDS = 5  # in an error message


class Outcome(NamedTuple):
    """The outcome of a task: its result, or its error."""

    result: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def name_shards(shards: Sequence[int]) -> str:
    """Return shards in words.

    >>> name_shards((3,)), name_shards(range(20))
    ('shard 3', '20 shards from 0 to 19')
    """
    if len(shards) == 1:
        return f"shard {shards[0]}"
    if len(shards) > MAX_NAMED_SHARDS:
        return f"{len(shards)} shards from {min(shards)} to {max(shards)}"
    return f"shards {list(shards)}"


def no_progress(steps: int) -> None:
    """Ignore a report of steps done."""
    del steps


def run_task(
    work: Work, shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
) -> Outcome:
    """Run a task in this process."""
    try:
        return Outcome(work(shard_cache, task, advance))
    except Exception as error:
        return Outcome(error=error)


class AbstractExecutor(abc.ABC):
    """Run work on shards: sampling and evaluating."""

    in_process: bool = False
    """Whether work runs in this process and shares its compiled programs."""

    @abc.abstractmethod
    def outcomes(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = no_progress,
        one_by_one: bool = False,
    ) -> Iterator[Outcome]:
        """Return the outcomes of the tasks, in their order.

        Args:
            work: the function to run on each task.
            tasks: the tasks.
            shard_cache: the model and its shards.
            advance: called with numbers of steps done, as far as the executor can report them.
            one_by_one: tasks are long: assign each by itself to whichever worker is free.
        """

    def map(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = no_progress,
        one_by_one: bool = False,
    ) -> Iterator[Any]:
        """Yield the results of the tasks in their order; raise a `TaskError` if one fails.

        Errors of vcmc itself are raised as they are.
        """
        outcomes = self.outcomes(work, tasks, shard_cache, advance, one_by_one)
        for task, outcome in zip(tasks, outcomes, strict=True):
            error = outcome.error
            if error is None or type(error).__module__.startswith("vcmc."):
                yield outcome.get()
            else:
                raise TaskError(
                    f"work on {name_shards(task.shards)} failed "
                    f"({type(error).__name__}: {error}). Check the model on their rows: "
                    "partition.load(k) has those of shard k."
                ) from error

    def count_slots(self) -> int:
        """Return how many tasks run at a time: by default one per core of this machine."""
        return num_cores()

    def close(self) -> None:  # noqa: B027
        """Release processes and threads; by default there are none."""
