"""The sending end of messages, with slots in this process."""

import threading

import numpy as np
import pytest

import vcmc
from vcmc.data.cache import ShardCache, Task
from vcmc.errors import SlotLost
from vcmc.executors import worker
from vcmc.executors.slots import MAX_LOSSES, AbstractSlot, AbstractSlots, PriorityLock
from vcmc.executors.worker import serve


class InProcess(AbstractSlot):
    """A slot that counts messages, and is lost as often as it is told to be."""

    def __init__(self, num_losses=0):
        self.sizes, self.num_losses, self.num_renewals = [], num_losses, 0

    def call(self, message, advance):
        self.sizes.append(len(message))
        if self.num_losses:
            self.num_losses -= 1
            raise SlotLost("killed")
        return serve(message, advance)

    def renew(self):
        self.num_renewals += 1

    def abandon(self):
        pass


class Slots(AbstractSlots):
    def __init__(self, *slots):
        super().__init__()
        self.slots = list(slots)

    def open_slots(self):
        return self.slots


@pytest.fixture(autouse=True)
def no_caches(monkeypatch):
    monkeypatch.setattr(worker, "_CACHES", type(worker._CACHES)())


@pytest.fixture
def shard_cache():
    return ShardCache(None, vcmc.split({"y": np.arange(40_000.0)}, 4))


TASKS = [Task((shard,)) for shard in range(4)]


def first_row(shard_cache, task, advance):
    return float(shard_cache.shards[task.shards[0]].rows["y"][0])


@pytest.mark.parametrize("one_by_one", [False, True])
def test_outcomes_are_in_the_order_of_the_tasks(shard_cache, one_by_one):
    expected = [first_row(shard_cache, task, None) for task in TASKS]
    with Slots(InProcess(), InProcess()) as executor:
        outcomes = executor.outcomes(first_row, TASKS, shard_cache, one_by_one=one_by_one)
        assert [outcome.get() for outcome in outcomes] == expected


def test_short_tasks_of_a_slot_are_one_message_and_rows_are_sent_once(shard_cache):
    slot = InProcess()
    with Slots(slot) as executor:
        for _ in range(2):
            list(executor.map(first_row, TASKS, shard_cache))
    rows, no_rows = slot.sizes
    assert rows > 40_000 * 8
    assert no_rows < 4000


def test_shards_that_a_process_has_lost_are_sent_again(shard_cache):
    slot = InProcess()
    with Slots(slot) as executor:
        expected = list(executor.map(first_row, TASKS, shard_cache))
        worker._CACHES.clear()  # as after a restart that nobody noticed
        assert list(executor.map(first_row, TASKS, shard_cache)) == expected
    assert [size > 40_000 for size in slot.sizes] == [True, False, True]


def test_tasks_of_a_lost_slot_are_sent_again(shard_cache):
    slot = InProcess(num_losses=MAX_LOSSES - 1)
    with Slots(slot) as executor:
        assert len(list(executor.map(first_row, TASKS, shard_cache))) == 4
    assert slot.num_renewals == MAX_LOSSES - 1


def test_tasks_fail_after_several_losses(shard_cache):
    with Slots(InProcess(num_losses=MAX_LOSSES)) as executor:
        outcomes = list(executor.outcomes(first_row, TASKS[:2], shard_cache))
    assert len(outcomes) == 2
    message = (
        r"worked on shards \[0, 1\] was lost 3 times \(killed\)\. It may have run out of memory"
    )
    with pytest.raises(SlotLost, match=message):
        outcomes[1].get()


def test_long_tasks_move_to_slots_that_are_free(shard_cache):
    """All tasks belong to the first slot, whose first task waits until the others are done."""
    others_done = threading.Semaphore(0)

    def work(shard_cache, task, advance):
        if task.chain == 0:
            for _ in range(3):
                assert others_done.acquire(timeout=60)
        else:
            others_done.release()
        return task.chain

    class Pickled(InProcess):  # semaphores cannot be pickled: run the work of this test
        def call(self, message, advance):
            import pickle

            from vcmc.executors.base import Outcome

            *_, tasks = pickle.loads(message)
            return pickle.dumps([Outcome(work(None, task, advance)) for task in tasks])

    tasks = [Task((0,), chain) for chain in range(4)]
    with Slots(Pickled(), Pickled()) as executor:
        outcomes = executor.outcomes(first_row, tasks, shard_cache, one_by_one=True)
        assert [outcome.get() for outcome in outcomes] == [0, 1, 2, 3]


def test_short_calls_get_a_lock_before_long_ones():
    lock, order = PriorityLock(), []

    def call(is_long):
        with lock.hold(is_long):
            order.append(is_long)

    with lock.hold(is_long=True):
        threads = [threading.Thread(target=call, args=(is_long,)) for is_long in (True, False)]
        threads[0].start()
        threads[1].start()
        while not lock._num_short_waiting:
            threads[1].join(0.001)
    for thread in threads:
        thread.join(60)
    assert order == [False, True]
