"""Any `concurrent.futures.Executor`: loky, MPI through `mpi4py.futures`, Dask's and others."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import Future as ConcurrentFuture
from dataclasses import dataclass, field

from ..errors import SlotLost
from .slots import AbstractSlot, AbstractSlots, serve


class Futures(AbstractSlots):
    """Processes of a `concurrent.futures.Executor`, which must have been started afresh, not forked.

    Which process does what is for the executor to say. So a process may be sent shards that another has; where rows are in files that all
    processes see, they are not sent at all.

    Args:
        pool: the executor. It is left open.
        num_slots: how many messages it works on at a time; by default as many as it says that it has workers.
    """

    def __init__(self, pool: Executor, num_slots: int | None = None):
        super().__init__()
        if not isinstance(pool, Executor):
            raise TypeError(
                f"Futures: pool must be a concurrent.futures.Executor; got {type(pool).__name__}."
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
    """A place in the queue of a pool."""

    pool: Executor
    _future: ConcurrentFuture[bytes] | None = field(default=None, init=False)

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        del advance
        try:
            self._future = self.pool.submit(serve, message)
            return self._future.result()
        except Exception as error:  # `serve` itself raises none: the process is gone, or the pool
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def renew(self) -> None:
        """A pool is not ours to mend: what is sent next shows whether it works."""

    def abandon(self) -> None:
        if self._future is not None:
            self._future.cancel()
