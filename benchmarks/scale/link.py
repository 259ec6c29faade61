"""A simulated network in the messages of an executor, and a record of its messages.

The driver has one line, on which the messages to all machines, and their replies, follow each
other; a message arrives when the line has sent all its bytes, and a delay later:

    arrival = max(now, line is free) + bytes / bandwidth + delay.

Reports of progress are not delayed, as nothing waits for them.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vcmc.data.cache import ShardCache, Task, Work
from vcmc.executors.base import Outcome, no_progress
from vcmc.executors.slots import AbstractSlot, AbstractSlots
from vcmc.executors.worker import pack_subset
from vcmc.inference.clock import Clock


class Network(NamedTuple):
    """A network.

    Attributes:
        name: its name in tables.
        delay: seconds of a message on its way, in each direction.
        bandwidth: bytes per second of the driver's line, in each direction.
    """

    name: str
    delay: float
    bandwidth: float


NO_NETWORK = Network("none", 0.0, float("inf"))
FAST = Network("5 ms, 1 Gbit/s", 0.005, 1e9 / 8)
SLOW = Network("50 ms, 100 Mbit/s", 0.05, 1e8 / 8)


class Message(NamedTuple):
    """A message to a slot: its bytes, those of the reply, and the seconds in between."""

    slot: int
    sent: int
    received: int
    computing: float


@dataclass
class Round:
    """One call of `outcomes`: its messages to all slots, in the order of their replies.

    Attributes:
        work: the name of the operation.
        stealing: in a round of long tasks, where idle slots take those of others, the bytes of a
            shard that they lack; None in other rounds.
    """

    work: str
    stealing: int | None = None
    messages: list[Message] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Stage:
    """A stage of a run: its rounds, and its seconds in all."""

    name: str
    rounds: list[Round]
    seconds: float


class Line:
    """One direction of the driver's line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = 0.0  # when the last byte will have been sent

    def carry(self, num_bytes: int, network: Network) -> None:
        """Wait until a message has arrived at the other end."""
        with self._lock:
            self._free = max(time.perf_counter(), self._free) + num_bytes / network.bandwidth
            arrival = self._free + network.delay
        while (rest := arrival - time.perf_counter()) > 0:
            time.sleep(rest)


class Recorder:
    """The messages of an executor's slots by stage, which it delays as a network would."""

    def __init__(self) -> None:
        self.network = NO_NETWORK
        self.stages: list[Stage] = []
        self._rounds: list[Round] = []
        self._lines = Line(), Line()
        self._begin = time.perf_counter()

    def restart(self, network: Network) -> None:
        """Forget all messages, and go on with another network."""
        self.network, self.stages, self._rounds = network, [], []
        self._begin = time.perf_counter()

    def begin_round(self, work: str, stealing: int | None) -> Round:
        """Record the messages that follow as a round."""
        self._rounds.append(Round(work, stealing))
        return self._rounds[-1]

    def end_stage(self, name: str) -> None:
        """Record the rounds since the last stage as one stage; some occur more than once."""
        now = time.perf_counter()
        rounds, seconds = self._rounds, now - self._begin
        self._rounds, self._begin = [], now
        for stage in self.stages:
            if stage.name == name:
                stage.rounds += rounds
                stage.seconds += seconds
                return
        self.stages.append(Stage(name, rounds, seconds))

    def call(self, call: Callable[..., bytes], slot: int, message: bytes, advance: Any) -> bytes:
        """Send a message by way of the network, and return its reply."""
        round_ = self._rounds[-1]
        to_slot, to_driver = self._lines
        to_slot.carry(len(message), self.network)
        begin = time.perf_counter()
        reply = call(message, advance)
        seconds = time.perf_counter() - begin
        to_driver.carry(len(reply), self.network)
        round_.messages.append(Message(slot, len(message), len(reply), seconds))
        return reply

    def follow_stages(self) -> None:
        """Have the clocks of all runs in this process say when their stages end."""
        lap = Clock.lap

        def lap_and_tell(clock: Clock, stage: str) -> None:
            lap(clock, stage)
            self.end_stage(stage)

        Clock.lap = lap_and_tell  # type: ignore[method-assign]


class RecordedSlot(AbstractSlot):
    """A slot whose messages are recorded and delayed."""

    def __init__(self, slot: AbstractSlot, index: int, recorder: Recorder):
        self.slot, self.index, self.recorder = slot, index, recorder

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        return self.recorder.call(self.slot.call, self.index, message, advance)

    def renew(self) -> None:
        self.slot.renew()

    def abandon(self) -> None:
        self.slot.abandon()


class RecordedSlots(AbstractSlots):
    """An executor with slots behind a simulated network."""

    def __init__(self, executor: AbstractSlots, recorder: Recorder):
        super().__init__()
        self.executor, self.recorder = executor, recorder

    def open_slots(self) -> list[AbstractSlot]:
        slots = self.executor.open_slots()
        return [RecordedSlot(slot, index, self.recorder) for index, slot in enumerate(slots)]

    def outcomes(
        self,
        work: Work,
        tasks: Sequence[Task],
        shard_cache: ShardCache,
        advance: Callable[[int], None] = no_progress,
        one_by_one: bool = False,
    ) -> Iterator[Outcome]:
        name = getattr(work, "func", work).__name__
        stealing = _shard_bytes(shard_cache) if one_by_one else None
        round_ = self.recorder.begin_round(name, stealing)
        begin = time.perf_counter()
        outcomes = super().outcomes(work, tasks, shard_cache, advance, one_by_one)
        round_.seconds = time.perf_counter() - begin
        return outcomes


def _shard_bytes(shard_cache: ShardCache) -> int:
    """Return the bytes of a shard that is sent; those in files are loaded where they are needed."""
    return len(pack_subset(shard_cache, [0])) if shard_cache.partition.in_memory else 0
