from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from vcmc.errors import SlotLost
from vcmc.executors import Futures
from vcmc.executors.futures import FuturesSlot


class Pool(Executor):
    """A pool that answers, or breaks."""

    _max_workers = 5

    def __init__(self, error=None):
        self.error = error

    def submit(self, function, message):
        future = Future()
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
