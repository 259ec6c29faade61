"""The sending end of messages, with slots in this process."""

import pickle
import threading

import numpy as np
import pytest

import vcmc
from vcmc.data.cache import ShardCache, Task
from vcmc.errors import ExecutorLost, Interrupted, SlotLost
from vcmc.executors import slots, worker
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
            *_, tasks = pickle.loads(message)
            return pickle.dumps([work(None, task, advance) for task in tasks])

    tasks = [Task((0,), chain) for chain in range(4)]
    with Slots(Pickled(), Pickled()) as executor:
        outcomes = executor.outcomes(first_row, tasks, shard_cache, one_by_one=True)
        assert [outcome.get() for outcome in outcomes] == [0, 1, 2, 3]


def test_short_calls_get_a_lock_before_long_ones():
    lock, order = PriorityLock(), []

    def call(is_long):
        with lock.hold(is_long, check=lambda: None):
            order.append(is_long)

    with lock.hold(is_long=True, check=lambda: None):
        threads = [threading.Thread(target=call, args=(is_long,)) for is_long in (True, False)]
        threads[0].start()
        threads[1].start()
        while not lock._num_short_waiting:
            threads[1].join(0.001)
    for thread in threads:
        thread.join(60)
    assert order == [False, True]


def interrupt():
    raise Interrupted


def test_waiting_for_a_lock_can_be_interrupted(monkeypatch):
    monkeypatch.setattr(slots, "POLL_SECONDS", 0.01)
    lock = PriorityLock()
    with lock.hold(is_long=True, check=lambda: None):
        with pytest.raises(Interrupted), lock.hold(is_long=False, check=interrupt):
            pass
        assert not lock._num_short_waiting


class Gone(InProcess):
    """A slot for which there is no other process."""

    def renew(self):
        raise ExecutorLost("no worker has answered for 60 s")


def test_all_tasks_fail_at_once_if_no_slot_is_left(shard_cache):
    slot = Gone(num_losses=99)
    with Slots(slot) as executor:
        outcomes = list(executor.outcomes(first_row, TASKS, shard_cache, one_by_one=True))
    assert len(slot.sizes) == 1  # the other tasks are not tried
    for outcome in outcomes:
        assert isinstance(outcome.error, ExecutorLost)
        assert "work on shard 0 could not be done: no worker has answered for 60 s" in str(
            outcome.error
        )
        assert isinstance(outcome.error.__cause__, ExecutorLost)


def test_a_stopped_run_does_not_renew_its_slots(shard_cache):
    slot = InProcess(num_losses=1)
    with Slots(slot) as executor, pytest.raises(Interrupted):
        executor.outcomes(first_row, TASKS, shard_cache, lambda steps: interrupt())
    assert not slot.num_renewals


def test_a_closed_executor_does_not_renew_its_slots(shard_cache):
    class ClosesItself(InProcess):
        def call(self, message, advance):
            executor.close()
            raise SlotLost("killed")

    slot = ClosesItself()
    with Slots(slot) as executor:
        (outcome,) = executor.outcomes(first_row, TASKS[:1], shard_cache)
    assert "lost once (killed)" in str(outcome.error)
    assert not slot.num_renewals


def test_an_executor_is_idle_between_tasks(shard_cache):
    with Slots(InProcess()) as executor:
        assert executor.num_open == 0
        list(executor.outcomes(first_row, TASKS, shard_cache))
        assert executor.num_open == 1
        assert executor.idle_seconds >= 0
        idle = []
        work = lambda *arguments: idle.append(executor.idle_seconds)  # noqa: E731
        executor._slots[0].call = lambda message, advance: work() or serve(message, advance)
        list(executor.outcomes(first_row, TASKS, shard_cache))
        assert idle == [0.0]


def test_all_tasks_fail_if_no_slot_can_be_opened(shard_cache):
    class NoWorkers(Slots):
        def open_slots(self):
            raise ExecutorLost("no workers for 60 s")

    with NoWorkers() as executor:
        outcomes = list(executor.outcomes(first_row, TASKS, shard_cache))
    assert [str(outcome.error) for outcome in outcomes] == ["no workers for 60 s"] * 4
