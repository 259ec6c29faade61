"""Work sent to other processes: slots, one message for each and round, and shards that arrive once and are kept there.

A message names its holding and the shards of its tasks. What a slot has not got yet of them travels with the first message that needs it;
a slot that has lost it (as its process was started anew) says so, and is sent it again. So rows never travel twice without need, and
nothing has to be known of who died when. Tasks of a slot that is lost are sent again, to the slot when it is back.
"""

import abc
import pickle
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import cloudpickle
import jax

from ..data.cache import ShardCache, Task, Work
from ..errors import SlotLost
from .base import AbstractExecutor, Outcome, nothing, outcome

MAX_LOSSES = 3  # of one message, before its tasks are given up
# What other processes are told of JAX: where its compiled programs are kept, if they are.
CONFIG = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
MAX_CACHES = 2  # that a process keeps: that of the run, and one for a run inside it


class Absent(Exception):
    """The process that a message was sent to has not got some of its shards, or nothing at all."""


def serve(message: bytes, advance: Callable[[int], None] = nothing) -> bytes:
    """Do the tasks of a message, in the process that it was sent to."""
    try:
        key, part, work, tasks = pickle.loads(message)
        shard_cache = _shard_cache(key, part)
        if shard_cache is None or not all(
            shard_cache.partition.has(shard) for task in tasks for shard in task.shards
        ):
            return cloudpickle.dumps(Absent())
        function: Work = pickle.loads(work)
    except Exception as error:
        return _packed([Outcome(error=_told(error, "could not be read where it was sent"))])
    return _packed([_outcome(function, shard_cache, task, advance) for task in tasks])


class Server:
    """What runs where a cluster keeps objects: an actor."""

    def serve(self, message: bytes) -> bytes:
        """Do the tasks of a message."""
        return serve(message)


def _outcome(
    work: Work, shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
) -> Outcome:
    found = outcome(work, shard_cache, task, advance)
    return (
        found
        if found.error is None
        else Outcome(error=_told(found.error, f"on shards {task.shards}"))
    )


def _told(error: Exception, where: str) -> Exception:
    """An error that can travel, with a note of where it was raised."""
    error.add_note(
        f"(raised in another process, {where})\n" + "".join(traceback.format_exception(error))
    )
    return error


def _packed(outcomes: list[Outcome]) -> bytes:
    try:
        return cloudpickle.dumps(outcomes)
    except Exception as error:  # an error that cannot be pickled, most likely
        texts = [
            f"{type(found.error).__name__}: {found.error}" for found in outcomes if found.error
        ]
        reason = (
            texts[0]
            if texts
            else f"its result cannot be sent back ({type(error).__name__}: {error})"
        )
        return cloudpickle.dumps([Outcome(error=RuntimeError(reason)) for _ in outcomes])


_HOLDINGS: OrderedDict[str, ShardCache] = OrderedDict()  # of this process, used last at the end


def _shard_cache(key: str, part: bytes | None) -> ShardCache | None:
    if part is not None:
        arrived: ShardCache
        config, arrived = pickle.loads(part)
        for name, value in config.items():
            jax.config.update(name, value)
        if key in _HOLDINGS:
            _HOLDINGS[key].merge(arrived)
        else:
            _HOLDINGS[key] = arrived
    if key in _HOLDINGS:
        _HOLDINGS.move_to_end(key)
    while len(_HOLDINGS) > MAX_CACHES:
        _HOLDINGS.popitem(last=False)
    return _HOLDINGS.get(key)


class AbstractSlot(abc.ABC):
    """One process elsewhere, which does what it is sent."""

    @abc.abstractmethod
    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        """What `serve` returns there. Raises `SlotLost` if the process is gone."""

    @abc.abstractmethod
    def renew(self) -> None:
        """Have a process again after the last one was lost."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Give up what is being done."""


class Turn:
    """One at a time, and what is short before what is long: an optimiser's round does not wait for all chains."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = False
        self._num_short = 0

    @contextmanager
    def take(self, is_long: bool) -> Iterator[None]:
        """Wait for one's turn, and have it."""
        with self._changed:
            self._num_short += not is_long
            self._changed.wait_for(lambda: not self._taken and not (is_long and self._num_short))
            self._num_short -= not is_long
            self._taken = True
        try:
            yield
        finally:
            with self._changed:
                self._taken = False
                self._changed.notify_all()


class AbstractSlots(AbstractExecutor):
    """An executor with slots. To write one, say in `open_slots` what they are."""

    def __init__(self) -> None:
        self._slots: list[AbstractSlot] = []
        self._turns: list[Turn] = []
        self._sent: list[dict[str, set[int]]] = []
        self._threads: dict[bool, ThreadPoolExecutor] = {}

    @abc.abstractmethod
    def open_slots(self) -> list[AbstractSlot]:
        """The slots, ready to be called."""

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
            self._sent = [{} for _ in self._slots]
            self._turns = [Turn() for _ in self._slots]
            self._threads = {
                is_long: ThreadPoolExecutor(len(self._slots), thread_name_prefix="vcmc-slot")
                for is_long in (False, True)
            }
        return self._slots

    def outcomes(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = nothing,
        one_by_one: bool = False,
    ) -> Iterator[Outcome]:
        num_slots = len(self._open())
        packed = cloudpickle.dumps(work)
        queues: list[deque[list[int]]] = [deque() for _ in range(num_slots)]
        for number, task in enumerate(tasks):
            home = queues[task.shards[0] * num_slots // shard_cache.num_shards]
            if one_by_one or not home:
                home.append([number])
            else:
                home[0].append(number)
        found: dict[int, Outcome] = {}
        given_up = threading.Event()

        def attend(index: int) -> None:
            while not given_up.is_set() and (numbers := _next(queues, index, one_by_one)):
                chosen = [tasks[number] for number in numbers]
                with self._turns[index].take(one_by_one):
                    results = self._send(index, packed, chosen, shard_cache, advance, given_up)
                found.update(zip(numbers, results, strict=True))

        busy = [index for index in range(num_slots) if queues[index] or one_by_one]
        waiting = [self._threads[one_by_one].submit(attend, index) for index in busy]
        try:
            for each in waiting:
                each.result()
        except BaseException:
            given_up.set()
            for slot in self._slots:
                slot.abandon()
            raise
        return iter([found[number] for number in range(len(tasks))])

    def _send(
        self,
        index: int,
        work: bytes,
        tasks: list[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None],
        given_up: threading.Event,
    ) -> list[Outcome]:
        slot, losses = self._slots[index], 0
        while True:
            message = pickle.dumps(
                (shard_cache.key, self._part(index, tasks, shard_cache), work, tasks)
            )
            try:
                reply = pickle.loads(slot.call(message, advance))
            except SlotLost as lost:
                self._sent[index] = {}
                losses += 1
                if given_up.is_set() or losses == MAX_LOSSES:
                    shards = sorted({shard for task in tasks for shard in task.shards})
                    error = SlotLost(
                        f"the process that worked on shards {shards} was lost {losses} times ({lost}). It may have run out of memory: "
                        "use more shards, or fewer processes on one machine."
                    )
                    return [Outcome(error=error) for _ in tasks]
                slot.renew()
                continue
            if isinstance(reply, Absent):
                self._sent[index] = {}
                continue
            return reply if len(reply) == len(tasks) else reply * len(tasks)

    def _part(self, index: int, tasks: list[Task], shard_cache: ShardCache) -> bytes | None:
        """What a slot has not been sent yet of what it needs."""
        needed = {shard for task in tasks for shard in task.shards}
        known = self._sent[index].get(shard_cache.key)
        absent = needed if known is None else needed - known
        if known is not None and not absent:
            return None
        everything = set(range(shard_cache.num_shards))
        self._sent[index] = {
            shard_cache.key: (known or set())
            | (absent if shard_cache.partition.in_memory else everything)
        }
        config = {name: getattr(jax.config, name) for name in CONFIG}
        return cloudpickle.dumps((config, shard_cache.part(sorted(absent))))


def _next(queues: list[deque[list[int]]], index: int, may_steal: bool) -> list[int] | None:
    """The next message of a slot: its own, or the last one of whoever has most left."""
    try:
        return queues[index].popleft()
    except IndexError:
        pass
    try:
        return max(queues, key=len).pop() if may_steal else None
    except IndexError:
        return None
