"""The workers of a Dask cluster.

Each worker has an actor that serves as a slot: a message to an actor takes a quarter of the time
of a Dask task.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

from ..errors import SlotLost
from .slots import AbstractSlot, AbstractSlots
from .worker import Server

WORKER_TIMEOUT = 60.0  # seconds to wait for a worker after the last one was lost
POLL_INTERVAL = 0.2  # seconds


class Dask(AbstractSlots):
    """The workers of a Dask cluster. Give each one thread: `dask worker --nthreads 1`.

    Args:
        cluster: a `distributed.Client`, or the address of a scheduler, e.g. "tcp://10.0.0.1:8786".
    """

    def __init__(self, cluster: Any):
        super().__init__()
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError('Dask() needs Dask: pip install "vcmc[dask]"') from error
        self.client = cluster if isinstance(cluster, Client) else Client(cluster)

    def open_slots(self) -> list[AbstractSlot]:
        addresses = sorted(self.client.nthreads())
        if not addresses:
            raise RuntimeError(
                f"the Dask cluster at {self.client.scheduler.address} has no workers. "
                "Start some: dask worker ADDRESS --nthreads 1"
            )
        return [DaskSlot(self.client, address) for address in addresses]

    def __repr__(self) -> str:
        return f"Dask({len(self._slots) or len(self.client.nthreads())} workers)"


class DaskSlot(AbstractSlot):
    """An actor on a worker, or on another if that worker is lost."""

    def __init__(self, client: Any, address: str):
        self.client, self.address = client, address
        self._start()

    def _start(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # Dask's, about actors
            future = self.client.submit(Server, actor=True, workers=[self.address], pure=False)
            self._actor = future.result()

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        del advance
        try:
            return self._actor.serve(message).result()
        except Exception as error:  # `serve` itself raises none
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def renew(self) -> None:
        """Start an actor on the same worker, or on another if it is gone."""
        begin = time.monotonic()
        while True:
            addresses = sorted(self.client.nthreads())
            if addresses:
                if self.address not in addresses:
                    self.address = addresses[hash(self.address) % len(addresses)]
                try:
                    return self._start()
                except Exception:  # this worker was lost, too
                    pass
            if time.monotonic() > begin + WORKER_TIMEOUT:
                raise SlotLost(
                    f"no worker of the Dask cluster was available within {WORKER_TIMEOUT:.0f} s"
                )
            time.sleep(POLL_INTERVAL)

    def abandon(self) -> None:
        """Drop the actor, which ends after its current message."""
        self._actor = None
