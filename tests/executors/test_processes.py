import os
import signal

import pytest

from vcmc.data.cache import ShardCache, Task
from vcmc.executors import Processes


@pytest.fixture(scope="module")
def executor():
    with Processes(1) as executor:
        yield executor


def outcome_of(executor, work, advance=lambda steps: None):
    shard_cache = ShardCache(None, [None])
    (outcome,) = executor.outcomes(work, [Task((0,))], shard_cache, advance)
    return outcome


def test_work_is_done_in_another_process_with_one_thread_of_blas(executor):
    def work(shard_cache, task, advance):
        return os.getpid(), os.environ["OPENBLAS_NUM_THREADS"]

    pid, num_threads = outcome_of(executor, work).get()
    assert pid == executor._slots[0].pid != os.getpid()
    assert num_threads == "1"


def test_steps_are_reported_while_work_is_done(executor):
    steps = []

    def work(shard_cache, task, advance):
        advance(3)
        advance(40)
        return "reply"

    assert outcome_of(executor, work, steps.append).get() == "reply"
    assert steps == [3, 40]


def test_a_killed_process_is_replaced(executor):
    work = lambda shard_cache, task, advance: os.getpid()  # noqa: E731
    first = outcome_of(executor, work).get()
    os.kill(first, signal.SIGKILL)
    assert outcome_of(executor, work).get() not in (first, os.getpid())


@pytest.mark.parametrize("num_processes", [0, 2.0])
def test_the_number_of_processes_is_a_positive_integer(num_processes):
    with pytest.raises(ValueError, match=rf"integer of at least 1, .* got {num_processes}"):
        Processes(num_processes)
