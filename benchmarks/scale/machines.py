"""Slots in one process that stand for machines, with one for each shard.

In a first run the machines compute in turns, so that none is disturbed by another, and their
replies and seconds are remembered. In later runs they sleep as long instead, all at the same time,
and return the same replies: draws do not depend on the executor. So a run on 100 machines can be
timed on two cores, with all messages, and the only computing is the driver's own.
"""

import hashlib
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vcmc.executors.slots import AbstractSlot, AbstractSlots
from vcmc.executors.worker import serve


@dataclass
class Memory:
    """Replies and seconds by the work and the tasks of a message."""

    is_learning: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)
    replies: dict[bytes, tuple[bytes, float]] = field(default_factory=dict)

    def reply(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        """Compute a reply, or sleep as long as that took."""
        _, _, work, tasks = pickle.loads(message)
        identity = hashlib.blake2b(work + pickle.dumps(tasks)).digest()
        if self.is_learning:
            with self.lock:
                begin = time.perf_counter()
                reply = serve(message, advance)
                self.replies[identity] = reply, time.perf_counter() - begin
            return reply
        if identity not in self.replies:
            raise RuntimeError(
                "a message of this run was not in the first one: runs must be the same."
            )
        reply, seconds = self.replies[identity]
        time.sleep(seconds)
        return reply


class Machines(AbstractSlots):
    """Machines that share a memory of replies."""

    def __init__(self, num_machines: int):
        super().__init__()
        self.num_machines = num_machines
        self.memory = Memory()

    def open_slots(self) -> list[AbstractSlot]:
        return [Machine(self.memory) for _ in range(self.num_machines)]


class Machine(AbstractSlot):
    """One of `Machines`."""

    def __init__(self, memory: Memory):
        self.memory = memory

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        return self.memory.reply(message, advance)

    def renew(self) -> None:
        """Nothing is ever lost."""

    def abandon(self) -> None:
        """Nothing goes on after the run."""
