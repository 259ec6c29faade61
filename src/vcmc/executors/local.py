"""Threads in this process: XLA releases Python's lock, so they use all cores without copies."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .._runtime import num_cores, thread_map
from ..data.cache import ShardCache, Task, Work
from .base import AbstractExecutor, Outcome, no_progress, run_task


@dataclass(frozen=True)
class Local(AbstractExecutor):
    """Threads in this process, by default one per core."""

    num_threads: int | None = None

    in_process = True

    def __post_init__(self) -> None:
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"Local: num_threads must be 1 or more; got {self.num_threads}.")

    def outcomes(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = no_progress,
        one_by_one: bool = False,
    ) -> Iterator[Outcome]:
        del one_by_one
        return thread_map(
            lambda task: run_task(work, shard_cache, task, advance), tasks, self.num_threads
        )

    def count_slots(self) -> int:
        return self.num_threads or num_cores()
