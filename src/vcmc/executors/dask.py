"""The workers of a Dask cluster.

Each worker has an actor that serves as a slot: a message to an actor takes a quarter of the time
of a Dask task. Dask waits for a lost worker without an end, as an actor is bound to its worker.
So the slot asks the scheduler, while it waits, whether the worker is still there.
"""

import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .._runtime import POLL_SECONDS
from ..errors import ExecutorLost, SlotLost, WaitingWarning, warn_user
from .slots import MAX_SILENCE_SECONDS, AbstractSlot, AbstractSlots
from .worker import Server

WORKER_TIMEOUT = 60.0  # seconds to wait for a worker, at the start and after the last was lost
ANSWER_TIMEOUT = 10.0  # seconds to wait for one answer of the scheduler, which may be busy
ASK_INTERVAL = 5.0  # seconds between two questions to the scheduler while a slot works


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
        slots = [DaskSlot(self.client, address) for address in self._wait_for_workers()]
        for slot in slots:
            with suppress(SlotLost):  # it is noticed below
                slot.submit()
        for slot in slots:
            try:
                slot.wait_until_started()
            except SlotLost:  # its worker was lost after it was listed
                slot.renew()
        return list(slots)

    def _wait_for_workers(self) -> list[str]:
        """Return the addresses of the workers; wait for a limited time if there are none."""
        begin = time.monotonic()
        name = f"the Dask cluster at {address_of(self.client)}"
        while not (addresses := worker_addresses(self.client)):
            seconds = time.monotonic() - begin
            if seconds > WORKER_TIMEOUT:
                raise ExecutorLost(
                    f"{name} has had no workers for {seconds:.0f} s. "
                    "Start some: dask worker ADDRESS --nthreads 1"
                )
            if seconds < POLL_SECONDS:
                warn_user(
                    f"{name} has no workers yet: waiting for {WORKER_TIMEOUT:.0f} s.",
                    WaitingWarning,
                )
            time.sleep(POLL_SECONDS)
        return addresses

    def __repr__(self) -> str:
        if self._slots:
            return f"Dask({len(self._slots)} workers)"
        return f"Dask({address_of(self.client)!r})"


class DaskSlot(AbstractSlot):
    """An actor on a worker, or on another if that worker is lost."""

    def __init__(self, client: Any, address: str):
        self.client, self.address = client, address
        self._future: Any = None  # of the actor
        self._actor: Any = None
        self._abandoned = threading.Event()

    def submit(self) -> None:
        """Ask for an actor on the worker, without waiting for it."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", category=FutureWarning)  # Dask's, about actors
                self._future = self.client.submit(
                    Server, actor=True, workers=[self.address], pure=False
                )
        except Exception as error:  # the client is closed
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def wait_until_started(self) -> None:
        """Wait for the actor; raise `SlotLost` if its worker is gone or does not start it."""
        if self._future is None:
            raise SlotLost(f"no actor was asked for on the Dask worker at {self.address}")
        begin = time.monotonic()

        def check() -> None:
            if time.monotonic() > begin + MAX_SILENCE_SECONDS:
                raise SlotLost(
                    f"the Dask worker at {self.address} has not started an actor for "
                    f"{MAX_SILENCE_SECONDS:.0f} s"
                )

        self._actor = self._wait(self._future, check)

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        try:
            reply = self._actor.serve(message)
        except Exception as error:
            raise SlotLost(f"{type(error).__name__}: {error}") from error
        return self._wait(reply, lambda: advance(0))

    def _wait(self, future: Any, check: Callable[[], None]) -> Any:
        """Return the result of a future, as long as the worker is there."""
        last_answer = last_question = time.monotonic()
        while True:
            try:
                return future.result(timeout=POLL_SECONDS)
            except TimeoutError as error:
                if future.done():  # then it is the error of the work
                    raise SlotLost(f"{type(error).__name__}: {error}") from error
            except Exception as error:  # `serve` itself raises none
                raise SlotLost(f"{type(error).__name__}: {error}") from error
            check()
            if self.client.status != "running":
                raise SlotLost(f"the connection to {_scheduler(self.client)} was lost")
            if time.monotonic() < last_question + ASK_INTERVAL:
                continue
            last_question = time.monotonic()
            if self._is_listed(last_answer):
                last_answer = time.monotonic()

    def _is_listed(self, last_answer: float) -> bool:
        """Ask the scheduler for the worker; return whether it answered. Raise if it is gone."""
        try:
            listed = self.client.nthreads(workers=[self.address], callback_timeout=ANSWER_TIMEOUT)
        except Exception as error:
            seconds = time.monotonic() - last_answer
            if seconds > WORKER_TIMEOUT:
                raise SlotLost(
                    f"{_scheduler(self.client)} has not answered for {seconds:.0f} s"
                ) from error
            return False
        if self.address not in listed:
            raise SlotLost(f"the Dask worker at {self.address} is gone")
        return True

    def renew(self) -> None:
        """Start an actor on the same worker, or on another if it is gone."""
        self._abandoned.clear()
        begin, tried = time.monotonic(), set[str]()
        while True:
            try:
                self._start_elsewhere(tried)
                return
            except SlotLost as error:
                reason = error
            seconds = time.monotonic() - begin
            if seconds > WORKER_TIMEOUT or self.client.status in ("closing", "closed"):
                raise ExecutorLost(
                    f"no worker of the Dask cluster at {address_of(self.client)} has answered for "
                    f"{seconds:.0f} s (at last: {reason}). Check that its scheduler and its "
                    "workers run."
                ) from reason
            if self._abandoned.wait(POLL_SECONDS):
                raise SlotLost("the run was stopped")

    def _start_elsewhere(self, tried: set[str]) -> None:
        """Start an actor on the slot's worker, or on the next one that was not tried yet."""
        addresses = worker_addresses(self.client)
        if not addresses:
            raise SlotLost("there are no workers")
        fresh = [address for address in addresses if address not in tried] or addresses
        if self.address not in fresh:  # slots spread over the workers that are left
            self.address = fresh[sum(self.address.encode()) % len(fresh)]
        tried.add(self.address)
        self.submit()
        self.wait_until_started()

    def abandon(self) -> None:
        """Drop the actor, which ends after its current message."""
        self._abandoned.set()
        self._actor = self._future = None


def worker_addresses(client: Any) -> list[str]:
    """Return the addresses of the workers; raise `SlotLost` if the scheduler does not answer."""
    try:
        return sorted(client.nthreads(callback_timeout=ANSWER_TIMEOUT))
    except Exception as error:
        raise SlotLost(
            f"{_scheduler(client)} has not answered within {ANSWER_TIMEOUT:.0f} s "
            f"({type(error).__name__}: {error})"
        ) from error


def address_of(client: Any) -> str:
    """Return the address of the scheduler of a client."""
    return str(getattr(client.scheduler, "address", "unknown address"))


def _scheduler(client: Any) -> str:
    return f"the Dask scheduler at {address_of(client)}"
