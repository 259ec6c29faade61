import pytest

from vcmc.data.cache import Task
from vcmc.errors import ModelError, TaskError
from vcmc.executors.base import AbstractExecutor, Outcome, no_progress, run_task


def divide(shard_cache, task, advance):
    advance(1)
    return shard_cache / task.shards[0]


def test_an_outcome_returns_its_result_or_raises_its_error():
    assert Outcome(3).get() == 3
    with pytest.raises(ZeroDivisionError):
        Outcome(error=ZeroDivisionError()).get()


def test_a_task_that_fails_has_an_outcome():
    steps = []
    assert run_task(divide, 6, Task((2,)), steps.append) == Outcome(3.0)
    assert isinstance(run_task(divide, 6, Task((0,)), steps.append).error, ZeroDivisionError)
    assert steps == [1, 1]


def test_an_interruption_is_not_an_outcome():
    def interrupt(shard_cache, task, advance):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_task(interrupt, None, Task((0,)), no_progress)


class InOrder(AbstractExecutor):
    def outcomes(self, work, tasks, shard_cache, advance=no_progress, one_by_one=False):
        return (run_task(work, shard_cache, task, advance) for task in tasks)


def test_map_raises_the_error_of_a_task_after_the_results_before_it():
    results = InOrder().map(divide, [Task((1,)), Task((0,))], 6)
    assert next(results) == 6.0
    with pytest.raises(TaskError, match=r"work on shard 0 failed \(ZeroDivisionError: ") as caught:
        next(results)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_errors_of_vcmc_are_raised_as_they_are():
    def refuse(shard_cache, task, advance):
        raise ModelError("not additive")

    with pytest.raises(ModelError, match="not additive"):
        list(InOrder().map(refuse, [Task((0,))], None))
