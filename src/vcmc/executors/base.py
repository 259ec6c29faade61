"""What an executor is: where work on shards is done. It must not change the answer.

Work is a function of a `ShardCache`, which has the model and loads shards, and of a task, which says which shards. To write an executor,
subclass `AbstractExecutor` and give it `outcomes`; if it sends work to other processes, subclass `AbstractSlots` (`slots.py`)
and give it slots instead. `vcmc.testing.check_executor` has the laws that it must keep, and `docs/extending.md` an example.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..data.cache import ShardCache, Task, Work


class Outcome(NamedTuple):
    """What came of a task: a result, or an error and what to say of it."""

    result: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """The result; an error is raised."""
        if self.error is not None:
            raise self.error
        return self.result


def nothing(steps: int) -> None:
    """Hear that some steps were done, and do nothing."""
    del steps


def outcome(
    work: Work, shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
) -> Outcome:
    """Do a task here."""
    try:
        return Outcome(work(shard_cache, task, advance))
    except Exception as error:
        return Outcome(error=error)


class AbstractExecutor(abc.ABC):
    """Where the two operations on a shard, sampling and evaluating, run."""

    in_process: bool = False
    """Whether work is done in this process, so that what was compiled here is compiled there."""

    @abc.abstractmethod
    def outcomes(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = nothing,
        one_by_one: bool = False,
    ) -> Iterator[Outcome]:
        """What comes of the tasks, in their order.

        Args:
            work: what is done.
            tasks: on what it is done.
            shard_cache: the model and its shards.
            advance: hears the numbers of steps done, as far as they can be told.
            one_by_one: tasks are long: each is given out by itself, to whoever is free.
        """

    def map(self, work: Work, tasks: Sequence[Task], shard_cache: ShardCache) -> Iterator[Any]:
        """The results of the tasks, in their order. An error in one of them is raised here."""
        for found in self.outcomes(work, tasks, shard_cache):
            yield found.get()

    def close(self) -> None:  # noqa: B027
        """Give up what was started; by default there is nothing."""
