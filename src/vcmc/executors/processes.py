"""Processes on this machine, each with cores of its own.

They are started as new programs, not forked: JAX has threads, which a fork would lose. A script
needs no `__main__` guard, as they do not run it. BLAS gets one thread in each.
"""

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .._runtime import num_cores
from ..errors import SlotLost
from .slots import AbstractSlot, AbstractSlots

ONE_BLAS_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
# XLA has many threads, and glibc would keep freed memory for each of them: some 200 MB in all.
FEW_MALLOC_ARENAS = {"MALLOC_ARENA_MAX": "2"}
STEPS, REPLY = b"s", b"r"  # the first byte of a message of a process: steps done, or the reply


class Processes(AbstractSlots):
    """Processes on this machine, by default one per core.

    They start when they are first needed, and end with this object.

    Args:
        num_processes: number of processes.

    >>> Processes(2)
    Processes(2)
    """

    def __init__(self, num_processes: int | None = None):
        super().__init__()
        if num_processes is not None and (not isinstance(num_processes, int) or num_processes < 1):
            raise ValueError(
                "Processes: num_processes must be an integer of at least 1, e.g. Processes(4); "
                f"got {num_processes!r}."
            )
        if not hasattr(socket, "AF_UNIX") or os.name != "posix":
            raise NotImplementedError(
                "Processes needs Linux or macOS. Use Local(), or Dask() with a local cluster."
            )
        self.num_processes = num_processes or num_cores()

    def open_slots(self) -> list[AbstractSlot]:
        slots = [ProcessSlot(index, self.num_processes) for index in range(self.num_processes)]
        for slot in slots:
            weakref.finalize(self, slot.abandon)
        return list(slots)

    def __repr__(self) -> str:
        return f"Processes({self.num_processes})"


@dataclass
class ProcessSlot(AbstractSlot):
    """One process on this machine."""

    index: int
    num_slots: int

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.abandon()
        ours, theirs = socket.socketpair()
        environment = {
            **os.environ,
            **ONE_BLAS_THREAD,
            **FEW_MALLOC_ARENAS,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vcmc.executors.serving", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        self._connection = Connection(ours.detach())
        _share_cores(self._process.pid, self.index, self.num_slots)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        try:
            self._connection.send_bytes(message)
            while isinstance(content := _unpacked(self._connection.recv_bytes()), int):
                advance(content)
        except (EOFError, OSError) as error:
            code = self._process.poll()
            raise SlotLost(f"{type(error).__name__}, exit code {code}") from error
        return content

    def abandon(self) -> None:
        if process := getattr(self, "_process", None):
            process.kill()
            process.wait()
            self._connection.close()


def packed_steps(steps: int) -> bytes:
    """Return the message that reports steps done."""
    return STEPS + str(steps).encode()


def _unpacked(message: bytes) -> Any:
    """Return the number of steps of a report, or the bytes of a reply."""
    return int(message[1:]) if message[:1] == STEPS else message[1:]


def _share_cores(pid: int, index: int, num_slots: int) -> None:
    """Give a process cores of its own, if there are enough: XLA would start threads for all."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= num_slots:
        os.sched_setaffinity(pid, cores[index::num_slots])
