import os
import signal
import subprocess
import sys

import pytest

from vcmc.data.cache import ShardCache, Task
from vcmc.errors import SlotLost
from vcmc.executors import Processes, processes


@pytest.fixture(scope="module")
def executor():
    with Processes(1) as executor:
        yield executor


def outcome_of(executor, work, advance=lambda steps: None):
    shard_cache = ShardCache(None, [None])
    (outcome,) = executor.outcomes(work, [Task((0,))], shard_cache, advance)
    return outcome


def nothing(shard_cache, task, advance):
    pass


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


def test_the_reason_of_an_error_arrives_whatever_its_class(executor):
    def work(shard_cache, task, advance):
        class TwoArguments(Exception):
            def __init__(self, shard, reason):
                super().__init__(f"{reason} in shard {shard}")

        raise TwoArguments(task.shards[0], "bad rows")

    error = outcome_of(executor, work).error
    assert str(error).endswith("bad rows in shard 0")
    assert "in work" in error.__notes__[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "fate"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"killed by signal 9 \(SIGKILL\): perhaps"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), r"killed by signal 15 \(SIGTERM\)\)"),
        (lambda: os._exit(3), r"ended with exit code 3"),
    ],
)
def test_a_lost_process_says_how_it_ended(executor, end, fate, monkeypatch):
    outcome_of(executor, nothing)  # a new process, if the last was lost
    monkeypatch.setattr("vcmc.executors.slots.MAX_LOSSES", 1)
    outcome = outcome_of(executor, lambda shard_cache, task, advance: end())
    with pytest.raises(SlotLost, match=f"worked on shard 0 was lost once .process .* {fate}"):
        outcome.get()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_program_that_outlives_its_process_does_not_keep_it_alive(executor, monkeypatch):
    """It has inherited the connection, which therefore stays open."""

    def work(shard_cache, task, advance):
        child = os.fork()
        if child == 0:  # nothing but a system call after the fork
            os.execvp("sleep", ["sleep", "90"])
        advance(child)
        os.kill(os.getpid(), signal.SIGKILL)

    outcome_of(executor, nothing)
    monkeypatch.setattr("vcmc.executors.slots.MAX_LOSSES", 1)
    children = []
    try:
        error = outcome_of(executor, work, lambda pid: children.append(pid) if pid else None).error
        assert "SIGKILL" in str(error)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_process_that_is_stopped_is_noticed(executor, monkeypatch):
    outcome_of(executor, nothing)  # it has started
    monkeypatch.setattr("vcmc.executors.slots.MAX_LOSSES", 1)
    monkeypatch.setattr(processes, "MAX_SILENCE_SECONDS", 1.5)
    work = lambda shard_cache, task, advance: os.kill(os.getpid(), signal.SIGSTOP)  # noqa: E731
    assert "has given no sign of life for 2 s" in str(outcome_of(executor, work).error)


SCRIPT = """
import vcmc
from vcmc.data.cache import ShardCache, Task
from my_model import work

with vcmc.executors.Processes(1) as executor:
    (outcome,) = executor.outcomes(work, [Task((0,))], ShardCache(None, [None]))
    print(outcome.get())
"""
MODEL = """
def work(shard_cache, task, advance):
    import sched

    return sched.scheduler.__name__
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script elsewhere", "command here"])
def test_files_in_the_working_directory_do_not_replace_modules(how, tmp_path):
    """But the user's own modules are found, also in the working directory."""
    working, elsewhere = tmp_path / "working", tmp_path / "elsewhere"
    working.mkdir()
    elsewhere.mkdir()
    (working / "sched.py").write_text("raise ImportError('from the working directory')")
    (working / "queue.py").write_text("raise ImportError('from the working directory')")
    if how == "command here":
        (working / "queue.py").unlink()  # it would replace that of this program, too
        command, home = ["-c", SCRIPT], working
    else:
        command, home = [str(elsewhere / "script.py")], elsewhere
        (home / "script.py").write_text(SCRIPT)
    (home / "my_model.py").write_text(MODEL)
    result = subprocess.run(
        [sys.executable, *command],
        cwd=working,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.stdout == "scheduler\n", result.stderr


def test_the_standard_library_is_searched_first_and_the_working_directory_last(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    standard, installed = os.path.dirname(os.__file__), os.path.dirname(pytest.__path__[0])
    monkeypatch.setattr(sys, "path", ["", "/users/folder", installed, standard])
    assert processes.search_path() == [standard, "/users/folder", installed, str(tmp_path)]
    monkeypatch.setattr(sys, "path", [standard, installed])
    assert processes.search_path() == [standard, installed]
