"""The workers of a Dask cluster, each a slot."""

import warnings
from collections.abc import Callable
from typing import Any

from .slots import AbstractSlot, AbstractSlots, SlotLost, serve


class Dask(AbstractSlots):
    """The workers of a Dask cluster. Have one thread in each: `dask worker --nthreads 1`.

    Args:
        cluster: a `distributed.Client`, or the address of a scheduler, such as "tcp://10.0.0.1:8786".
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
                f"the Dask cluster at {self.client.scheduler.address} has no workers. Start some: dask worker ADDRESS --nthreads 1"
            )
        return [DaskSlot(self.client, address) for address in addresses]

    def __repr__(self) -> str:
        return f"Dask({len(self._slots) or len(self.client.nthreads())} workers)"


class DaskSlot(AbstractSlot):
    """A Dask worker; while it is gone, others do its work."""

    def __init__(self, client: Any, address: str):
        self.client, self.address = client, address
        self._future: Any = None

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        del advance
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sending large graph")  # shards travel once
                self._future = self.client.submit(
                    serve,
                    message,
                    workers=[self.address],
                    allow_other_workers=True,
                    pure=False,
                    priority=1,
                )
            return self._future.result()
        except Exception as error:  # `serve` itself raises none
            raise SlotLost(f"{type(error).__name__}: {error}") from error
        finally:
            self._future = None

    def renew(self) -> None:
        addresses = sorted(self.client.nthreads())
        if addresses and self.address not in addresses:
            self.address = addresses[hash(self.address) % len(addresses)]

    def abandon(self) -> None:
        if self._future is not None:
            self._future.cancel()
