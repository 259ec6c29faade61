"""Peak memory and processor seconds of the driver and of the processes of an executor."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import vcmc
from vcmc.data.cache import ShardCache, Task
from vcmc.executors import AbstractExecutor


class Costs(NamedTuple):
    """What a process has used since it started."""

    pid: int
    peak_mb: float
    cpu_seconds: float


def own_costs() -> Costs:
    """Return the costs of this process. `getrusage` would include the peak of its parent."""
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return Costs(os.getpid(), int(line.split()[1]) / 1024, time.process_time())


def _measure(shard_cache: ShardCache, task: Task, advance: Callable[[int], None]) -> Costs:
    del shard_cache, task, advance
    return own_costs()


class Workers:
    """The processes of an executor: a task without rows for each of its slots."""

    def __init__(self, executor: AbstractExecutor):
        self.executor = executor
        model = vcmc.models.Logistic(1)
        self.num_slots = executor.count_slots()
        partition = vcmc.split(
            {"x": np.ones((self.num_slots, 1)), "y": np.ones(self.num_slots)}, self.num_slots
        )
        self._cache = ShardCache(model, partition)
        self.first = self.costs()

    def costs(self) -> Sequence[Costs]:
        """Return the costs of each process, without this one."""
        tasks = [Task((shard,)) for shard in range(self.num_slots)]
        every = self.executor.map(_measure, tasks, self._cache)
        return sorted({costs.pid: costs for costs in every if costs.pid != os.getpid()}.values())

    def cpu_seconds(self) -> float:
        """Return the processor seconds of all processes since they were first asked."""
        return sum(costs.cpu_seconds for costs in self.costs()) - sum(
            costs.cpu_seconds for costs in self.first
        )
