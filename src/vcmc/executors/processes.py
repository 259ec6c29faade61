"""Processes on this machine, each with cores of its own.

They are started as new programs, not forked: JAX has threads, which a fork would lose. A script
needs no `__main__` guard, as they do not run it. BLAS gets one thread in each.

A process sends a sign of life every few seconds, so that one which is stopped is noticed, too.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from .._runtime import POLL_SECONDS, num_cores
from ..errors import SlotLost
from .slots import MAX_SILENCE_SECONDS, AbstractSlot, AbstractSlots

ONE_BLAS_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
# XLA has many threads, and glibc would keep freed memory for each of them: some 200 MB in all.
FEW_MALLOC_ARENAS = {"MALLOC_ARENA_MAX": "2"}
STEPS, REPLY = b"s", b"r"  # the first byte of a message of a process: steps done, or the reply
EXIT_SECONDS = 5.0  # to wait for the end of a process that has closed its connection, or is killed
# Python's -P keeps the working directory out of the search path, which the arguments then replace.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from vcmc.executors.serving import main; main(int(sys.argv[1]))"
)


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
        _limit_waiting(ours)
        # an empty entry of PYTHONPATH is the working directory
        python_path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        environment = {
            **os.environ,
            **ONE_BLAS_THREAD,
            **FEW_MALLOC_ARENAS,
            "PYTHONPATH": os.pathsep.join(python_path),
        }
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", PROGRAM, str(theirs.fileno()), *search_path()],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env=environment,
                )
            except OSError as error:
                ours.close()
                raise SlotLost(f"a process could not be started: {error}") from error
        self._connection = Connection(ours.detach())
        _share_cores(self._process.pid, self.index, self.num_slots)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        try:
            self._connection.send_bytes(message)
            while isinstance(content := _unpacked(self._receive(advance)), int):
                advance(content)
        except (EOFError, OSError) as error:
            raise SlotLost(self._fate()) from error
        return content

    def _receive(self, advance: Callable[[int], None]) -> bytes:
        """Return the next message of the process; signs of life are messages, too."""
        begin = time.monotonic()
        while not self._connection.poll(POLL_SECONDS):
            advance(0)
            if self._process.poll() is not None and not self._connection.poll(0):
                raise EOFError
            if time.monotonic() > begin + MAX_SILENCE_SECONDS:
                raise SlotLost(
                    f"process {self.pid} has given no sign of life for {MAX_SILENCE_SECONDS:.0f} s"
                )
        return self._connection.recv_bytes()

    def _fate(self) -> str:
        """Return in words how the process ended; it may end a little later than its connection."""
        try:
            code = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"process {self.pid} does not answer"
        if code >= 0:
            return f"process {self.pid} ended with exit code {code}"
        name = {number.value: f" ({number.name})" for number in signal.Signals}.get(-code, "")
        hint = ": perhaps out of memory" if -code == signal.SIGKILL else ""
        return f"process {self.pid} was killed by signal {-code}{name}{hint}"

    def abandon(self) -> None:
        if process := getattr(self, "_process", None):
            process.kill()
            with suppress(subprocess.TimeoutExpired):  # if it waits for a disk, it ends later
                process.wait(EXIT_SECONDS)
            self._connection.close()


def search_path() -> list[str]:
    """Return where a process looks for modules: in the standard library first.

    The working directory comes last, and only if this program looks there, too: a file in it,
    e.g. `queue.py`, must not replace a module of Python or of an installed package.
    """
    scheme = sysconfig.get_paths()
    standard = {scheme["stdlib"], scheme["platstdlib"], sysconfig.get_config_var("DESTSHARED")}
    working = os.getcwd()

    def place(folder: str) -> int:
        if folder in standard or folder.endswith(".zip"):
            return 0
        return 2 if os.path.realpath(folder) == os.path.realpath(working) else 1

    return sorted(dict.fromkeys(os.path.abspath(entry) for entry in sys.path), key=place)


def _limit_waiting(connection: socket.socket) -> None:
    """Limit the seconds that sending or receiving waits for a process that is stopped."""
    limit = struct.pack("ll", int(MAX_SILENCE_SECONDS), 0)
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, limit)


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
