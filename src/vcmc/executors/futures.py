"""Any `concurrent.futures.Executor` of processes, e.g. of loky or `mpi4py.futures`."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import Future as ConcurrentFuture
from dataclasses import dataclass, field

from ..errors import SlotLost
from .slots import AbstractSlot, AbstractSlots
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


@dataclass
class FuturesSlot(AbstractSlot):
    """One message at a time in the queue of a pool."""

    pool: Executor
    _future: ConcurrentFuture[bytes] | None = field(default=None, init=False)

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        del advance
        try:
            self._future = self.pool.submit(serve, message)
            return self._future.result()
        except Exception as error:  # `serve` raises none: the process or the pool has died
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def renew(self) -> None:
        """Do nothing: the pool belongs to the user. The next message shows whether it works."""

    def abandon(self) -> None:
        if self._future is not None:
            self._future.cancel()
