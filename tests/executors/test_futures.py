import multiprocessing
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from vcmc.errors import ExecutorLost, Interrupted, SlotLost
from vcmc.executors import Futures, executor_of, futures
from vcmc.executors.futures import FuturesSlot


class Pool(Executor):
    """A pool that answers, or breaks."""

    _max_workers = 5

    def __init__(self, error=None):
        self.error = error

    def submit(self, function, message):
        future = Future()
        if self.error == "never":
            return future
        if self.error:
            future.set_exception(self.error)
        else:
            future.set_result(message + b" done")
        return future


def test_there_are_as_many_slots_as_workers_by_default():
    assert Futures(Pool()).num_slots == 5
    assert len(Futures(Pool(), num_slots=2).open_slots()) == 2


def test_the_reply_of_the_pool_is_returned():
    assert FuturesSlot(Pool()).call(b"message", print) == b"message done"


def test_an_error_of_the_pool_means_that_the_process_is_lost():
    with pytest.raises(SlotLost, match="OSError: broken"):
        FuturesSlot(Pool(OSError("broken"))).call(b"message", print)


def test_other_pools_are_refused():
    with pytest.raises(
        TypeError, match=r"pool must be a concurrent\.futures\.Executor, .* got int"
    ):
        Futures(3)
    with ThreadPoolExecutor(1) as threads, pytest.raises(TypeError, match="for threads use"):
        Futures(threads)


def test_a_pool_that_forks_is_refused():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        for wrap in (Futures, executor_of):
            with pytest.raises(ValueError, match=r'spawned, not forked.*get_context\("spawn"\)'):
                wrap(pool)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools_that_do_not_fork_are_taken(method):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert Futures(pool).num_slots == 2


def test_a_pool_that_never_begins_is_not_awaited_forever(monkeypatch):
    monkeypatch.setattr(futures, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(futures, "MAX_SILENCE_SECONDS", 0.05)
    with pytest.raises(ExecutorLost, match=r"pool Pool has not begun .* message for 0 s"):
        FuturesSlot(Pool("never")).call(b"message", lambda steps: None)


def test_waiting_for_a_pool_can_be_interrupted(monkeypatch):
    def interrupt(steps):
        raise Interrupted

    monkeypatch.setattr(futures, "POLL_SECONDS", 0.01)
    with pytest.raises(Interrupted):
        FuturesSlot(Pool("never")).call(b"message", interrupt)


def test_a_pool_that_is_shut_down_is_lost():
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    pool.shutdown()
    with pytest.raises(ExecutorLost, match="ProcessPoolExecutor takes no work: RuntimeError"):
        FuturesSlot(pool).call(b"message", print)
