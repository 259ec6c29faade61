"""Executors whose work is done in other processes, the slots.

Tasks are sent in messages, one per slot and call for short tasks. A message names a shard cache and
the shards of its tasks. Shards that were not sent to the slot before accompany the first message
that needs them. A slot that lacks shards (its process was restarted) says so, and is sent them
again. So rows are sent once, and nobody has to track which process died when. The tasks of a
lost slot are sent again after it was renewed.

Nothing here waits without an end: a chain may take hours, so there is no limit to a message, but
a slot looks in between whether its process is alive, and gives it up if not.
"""

import abc
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import cloudpickle

from .._runtime import POLL_SECONDS, new_pool, wait_for_all
from ..data.cache import ShardCache, Task, Work
from ..errors import ExecutorLost, SlotLost
from .base import AbstractExecutor, Outcome, name_shards, no_progress
from .reply import ShardsMissing, unpack_reply
from .worker import pack_subset

MAX_LOSSES = 3  # of slots by one message, before its tasks fail
# without a sign of life of a process that seems to exist: ten times a long pause of a machine
# that swaps, and as long as Dask's own limit
MAX_SILENCE_SECONDS = 300.0

Messages = deque[list[int]]
"""Queued messages of a slot: for each, the numbers of its tasks."""


class AbstractSlot(abc.ABC):
    """One process that receives messages."""

    @abc.abstractmethod
    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        """Return the reply of `worker.serve` there. Raise `SlotLost` if the process has died.

        A task may take hours. Do not limit its time: wait for `POLL_SECONDS` at a time, and look
        in between whether the process is alive. Call `advance(0)` then, too, which raises
        `Interrupted` if the run was stopped.
        """

    @abc.abstractmethod
    def renew(self) -> None:
        """Start another process after the last one was lost, within a limited time.

        Raise `ExecutorLost` if there is none.
        """

    @abc.abstractmethod
    def abandon(self) -> None:
        """Stop the work in progress."""


class PriorityLock:
    """A lock that short calls get before long ones: an optimizer does not wait for all chains."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_held = False
        self._num_short_waiting = 0

    @contextmanager
    def hold(self, is_long: bool, check: Callable[[], None]) -> Iterator[None]:
        """Wait for the lock, and hold it; `check` is called while waiting, and may raise."""

        def is_free() -> bool:
            return not self._is_held and not (is_long and self._num_short_waiting)

        with self._changed:
            self._num_short_waiting += not is_long
            try:
                while not self._changed.wait_for(is_free, timeout=POLL_SECONDS):
                    check()
            finally:
                self._num_short_waiting -= not is_long
            self._is_held = True
        try:
            yield
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()


class AbstractSlots(AbstractExecutor):
    """An executor with slots. To write one, define `open_slots`."""

    def __init__(self) -> None:
        self._slots: list[AbstractSlot] = []
        self._locks: list[PriorityLock] = []
        self._shards_sent: list[dict[str, set[int]]] = []  # of each slot, by key of the cache
        self._threads: dict[bool, ThreadPoolExecutor] = {}  # one per slot, for short or long tasks
        self._num_maps = 0  # that run now
        self._last_used = time.monotonic()

    @abc.abstractmethod
    def open_slots(self) -> list[AbstractSlot]:
        """Start the slots, ready to be called."""

    @property
    def num_open(self) -> int:
        """Number of slots that are open."""
        return len(self._slots)

    def count_slots(self) -> int:
        return len(self._open())

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last task was done; 0 while there are tasks."""
        return 0.0 if self._num_maps else time.monotonic() - self._last_used

    def close(self) -> None:
        for slot in self._slots:
            slot.abandon()
        self._slots = []
        for threads in self._threads.values():
            threads.shutdown(wait=False)

    def __enter__(self) -> "AbstractSlots":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> list[AbstractSlot]:
        if not self._slots:
            self._slots = self.open_slots()
            self._shards_sent = [{} for _ in self._slots]
            self._locks = [PriorityLock() for _ in self._slots]
            self._threads = {
                is_long: new_pool(len(self._slots), "vcmc-slot") for is_long in (False, True)
            }
        return self._slots

    def outcomes(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = no_progress,
        one_by_one: bool = False,
    ) -> Iterator[Outcome]:
        try:
            num_slots = len(self._open())
        except SlotLost as error:
            return iter([Outcome(error=error) for _ in tasks])
        packed_work = cloudpickle.dumps(work)
        queues = _queues(tasks, shard_cache.num_shards, num_slots, one_by_one)
        outcomes: dict[int, Outcome] = {}
        stopped = threading.Event()

        def check() -> None:
            """Raise `Interrupted` if the run was stopped."""
            advance(0)

        def send_messages(index: int) -> None:
            """Send messages to one slot until there are none left, or no slot answers."""
            while not stopped.is_set() and (numbers := _next_message(queues, index, one_by_one)):
                chosen = [tasks[number] for number in numbers]
                with self._locks[index].hold(one_by_one, check):
                    results = self._send(index, packed_work, chosen, shard_cache, advance, stopped)
                outcomes.update(zip(numbers, results, strict=True))
                if isinstance(results[0].error, ExecutorLost):
                    stopped.set()
                    lost.append(results[0])

        lost: list[Outcome] = []  # the loss of all slots, as an outcome for the tasks not sent
        busy = [index for index in range(num_slots) if queues[index] or one_by_one]
        futures = [self._threads[one_by_one].submit(send_messages, index) for index in busy]
        self._num_maps += 1
        try:
            wait_for_all(futures, check)
        except BaseException:
            stopped.set()
            for slot in self._slots:
                slot.abandon()
            raise
        finally:
            self._num_maps -= 1
            self._last_used = time.monotonic()
        return iter([outcomes.get(number) or lost[0] for number in range(len(tasks))])

    def _send(
        self,
        index: int,
        packed_work: bytes,
        tasks: list[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None],
        stopped: threading.Event,
    ) -> list[Outcome]:
        """Send tasks to a slot, as often as it takes, and return their outcomes."""
        slot, num_losses = self._slots[index], 0
        while True:
            subset = self._unsent_subset(index, tasks, shard_cache)
            message = pickle.dumps((shard_cache.key, subset, packed_work, tasks))
            try:
                reply = unpack_reply(slot.call(message, advance))
            except SlotLost as error:
                self._shards_sent[index] = {}
                num_losses += 1
                advance(0)  # the slot may have been abandoned because the run was stopped
                if isinstance(error, ExecutorLost):
                    return [Outcome(error=_no_slot(tasks, error)) for _ in tasks]
                # without slots, the executor was closed
                if stopped.is_set() or not self._slots or num_losses == MAX_LOSSES:
                    return [Outcome(error=_loss(tasks, num_losses, error)) for _ in tasks]
                try:
                    slot.renew()
                except SlotLost as failure:
                    return [Outcome(error=_no_slot(tasks, failure)) for _ in tasks]
                continue
            if isinstance(reply, ShardsMissing):
                self._shards_sent[index] = {}
                continue
            return reply if len(reply) == len(tasks) else reply * len(tasks)

    def _unsent_subset(
        self, index: int, tasks: list[Task], shard_cache: ShardCache
    ) -> bytes | None:
        """Return the packed shards that a slot needs and was not sent yet, and note them as sent.

        None if the slot has all of them. Only the last shard cache of a slot is remembered.
        """
        needed = {shard for task in tasks for shard in task.shards}
        sent = self._shards_sent[index].get(shard_cache.key)
        unsent = needed if sent is None else needed - sent
        if sent is not None and not unsent:
            return None
        all_shards = set(range(shard_cache.num_shards))
        added = unsent if shard_cache.partition.in_memory else all_shards
        self._shards_sent[index] = {shard_cache.key: (sent or set()) | added}
        return pack_subset(shard_cache, sorted(unsent))


def _queues(
    tasks: Sequence[Task], num_shards: int, num_slots: int, one_by_one: bool
) -> list[Messages]:
    """Assign tasks to slots by their first shard, in one message per slot or one per task."""
    queues: list[Messages] = [deque() for _ in range(num_slots)]
    for number, task in enumerate(tasks):
        queue = queues[task.shards[0] * num_slots // num_shards]
        if one_by_one or not queue:
            queue.append([number])
        else:
            queue[0].append(number)
    return queues


def _next_message(queues: list[Messages], index: int, may_steal: bool) -> list[int] | None:
    """Take the next message of a slot, or, if it has none, the last of the longest queue."""
    try:
        return queues[index].popleft()
    except IndexError:
        pass
    try:
        return max(queues, key=len).pop() if may_steal else None
    except IndexError:
        return None


def _loss(tasks: list[Task], num_losses: int, error: SlotLost) -> SlotLost:
    count = "once" if num_losses == 1 else f"{num_losses} times"
    loss = SlotLost(
        f"the process that worked on {_shards_of(tasks)} was lost {count} ({error}). "
        "It may have run out of memory: use more shards, or fewer processes on one machine."
    )
    loss.__cause__ = error
    return loss


def _no_slot(tasks: list[Task], loss: SlotLost) -> ExecutorLost:
    error = ExecutorLost(f"work on {_shards_of(tasks)} could not be done: {loss}")
    error.__cause__ = loss
    return error


def _shards_of(tasks: list[Task]) -> str:
    return name_shards(sorted({shard for task in tasks for shard in task.shards}))
