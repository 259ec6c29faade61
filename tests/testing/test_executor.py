"""check_executor finds planted faults and names the broken law."""

import threading

import pytest

from vcmc.executors import Local
from vcmc.executors.base import Outcome
from vcmc.testing import check_executor


class Faulty(Local):
    """Threads that lose the order, or errors, or do other tasks."""

    def __init__(self, fault):
        super().__init__()
        object.__setattr__(self, "fault", fault)

    def outcomes(self, work, tasks, shard_cache, advance=lambda steps: None, one_by_one=False):
        if self.fault == "others":
            tasks = [task._replace(chain=task.chain + 1) for task in tasks]
        found = list(super().outcomes(work, tasks, shard_cache, advance))
        if self.fault == "order":
            return iter(found[::-1])
        if self.fault == "errors":
            return iter([Outcome(each.result) for each in found])
        if self.fault == "raises":
            return iter([Outcome(each.get()) for each in found])
        return iter(found)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (
            "order",
            r"outcomes are in the order of the tasks, one for each. "
            r"Expected .*\[\(0, 201\).*; got \[\(4, 200\)",
        ),
        ("errors", "an error in a task is in its own outcome"),
        (
            "raises",
            "an error in a task.*Expected an outcome for each task; "
            "got RuntimeError: shard 2 failed on purpose",
        ),
        ("others", r"draws are those of Local\(\), to the last bit"),
    ],
)
def test_faults_of_an_executor_are_found(fault, law, broken):
    with broken(law):
        check_executor(Faulty(fault))


class Forgetful(Faulty):
    """An executor of processes that waits for a lost one, or forgets its loss."""

    in_process = False

    def outcomes(self, work, tasks, shard_cache, advance=lambda steps: None, one_by_one=False):
        if getattr(work, "__name__", "") != "die":
            return super().outcomes(work, tasks, shard_cache, advance)
        if self.fault == "waits":
            threading.Event().wait(5)
        return iter([Outcome(None)])


@pytest.mark.parametrize(
    ("fault", "found"), [("waits", "within 0 s; got none"), ("forgets", "SlotLost; got None")]
)
def test_a_lost_process_must_be_noticed(fault, found, broken, monkeypatch):
    monkeypatch.setattr("vcmc.testing.executor.LOSS_SECONDS", 0.1)
    with broken(f"a lost process is not awaited forever.*{found}"):
        check_executor(Forgetful(fault), kills=True)
