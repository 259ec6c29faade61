"""Any `concurrent.futures.Executor` of processes, e.g. of loky or `mpi4py.futures`."""

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from concurrent.futures import Future as ConcurrentFuture
from dataclasses import dataclass, field

from .._runtime import POLL_SECONDS
from ..errors import ExecutorLost, SlotLost
from .slots import MAX_SILENCE_SECONDS, AbstractSlot, AbstractSlots
from .worker import serve


class Futures(AbstractSlots):
    """Processes of a `concurrent.futures.Executor`, which must be spawned, not forked.

    The pool chooses the process of each message, so that a shard may be sent to several processes.
    Rows in files that all processes can read are not sent at all.

    Args:
        pool: the executor. It is left open.
        num_slots: number of concurrent messages; by default the number of workers of the pool.
    """

    def __init__(self, pool: Executor, num_slots: int | None = None):
        super().__init__()
        if not isinstance(pool, Executor):
            raise TypeError(
                "Futures: pool must be a concurrent.futures.Executor, e.g. a "
                f"ProcessPoolExecutor; got {type(pool).__name__}."
            )
        if isinstance(pool, ThreadPoolExecutor):
            raise TypeError(
                "Futures is for processes; for threads use vcmc.executors.Local(num_threads=...)."
            )
        if start_method(pool) == "fork":
            raise ValueError(
                "Futures: the processes of pool must be spawned, not forked: JAX has threads, and "
                "a forked process hangs. Use ProcessPoolExecutor(2, mp_context="
                'multiprocessing.get_context("spawn")), or vcmc.executors.Processes(2).'
            )
        self.pool = pool
        counts = (
            num_slots,
            *(getattr(pool, name, None) for name in ("num_workers", "_max_workers")),
            1,
        )
        self.num_slots = next(int(count) for count in counts if count)

    def open_slots(self) -> list[AbstractSlot]:
        return [FuturesSlot(self.pool) for _ in range(self.num_slots)]

    def __repr__(self) -> str:
        return f"Futures({type(self.pool).__name__}, {self.num_slots})"


def start_method(pool: Executor) -> str | None:
    """Return how a pool starts its processes; None if that is not known."""
    for name in ("_mp_context", "_context"):  # the standard library's, and loky's
        method = getattr(getattr(pool, name, None), "get_start_method", None)
        if method is not None:
            return str(method())
    return None


@dataclass
class FuturesSlot(AbstractSlot):
    """One message at a time in the queue of a pool."""

    pool: Executor
    _future: ConcurrentFuture[bytes] | None = field(default=None, init=False)

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        begin = time.monotonic()
        try:
            self._future = future = self.pool.submit(serve, message)
        except Exception as error:  # broken, or shut down
            raise ExecutorLost(f"{self._name} takes no work: {_text(error)}") from error
        while True:
            try:
                return future.result(timeout=POLL_SECONDS)
            except CancelledError as error:
                raise SlotLost(f"{self._name} has cancelled a message") from error
            except Exception as error:  # `serve` raises none: the process or the pool has died
                if future.done():
                    raise SlotLost(_text(error)) from error
            advance(0)
            seconds = time.monotonic() - begin
            if not future.running() and not future.done() and seconds > MAX_SILENCE_SECONDS:
                future.cancel()
                raise ExecutorLost(
                    f"{self._name} has not begun to work on a message for {seconds:.0f} s. Check "
                    "that its processes run, and that other work leaves some of them free."
                )

    @property
    def _name(self) -> str:
        return f"the pool {type(self.pool).__name__}"

    def renew(self) -> None:
        """Do nothing: the pool belongs to the user. The next message shows whether it works."""

    def abandon(self) -> None:
        if self._future is not None:
            self._future.cancel()


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
