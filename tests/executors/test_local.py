import threading

import pytest

from vcmc.data.cache import Task
from vcmc.executors import Local


def test_outcomes_are_in_the_order_of_the_tasks():
    done = threading.Event()

    def work(shard_cache, task, advance):
        if task.shards[0] == 0:
            assert done.wait(timeout=60)  # the first task ends last
        else:
            done.set()
        return task.shards[0]

    tasks = [Task((0,)), Task((1,))]
    assert list(Local(num_threads=2).map(work, tasks, None)) == [0, 1]


def test_progress_is_reported():
    steps = []
    work = lambda shard_cache, task, advance: advance(task.shards[0])  # noqa: E731
    list(Local(1).outcomes(work, [Task((3,)), Task((4,))], None, steps.append))
    assert steps == [3, 4]


def test_there_is_a_thread():
    with pytest.raises(ValueError, match="num_threads must be 1 or more; got -1"):
        Local(-1)
