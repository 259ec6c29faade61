"""Actors of a Ray cluster, each of which is a slot.

An actor holds one core of the cluster until it is killed. So slots are no more than the cores that
are free, and an executor that is idle gives its cores back when another of this program needs them.
Ray does not restart actors here: it would wait for a free core without an end.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .._runtime import POLL_SECONDS, num_cores
from ..errors import ExecutorLost, Interrupted, SlotLost, WaitingWarning, warn_user
from .processes import FEW_MALLOC_ARENAS, ONE_BLAS_THREAD
from .slots import MAX_SILENCE_SECONDS, AbstractSlot, AbstractSlots
from .worker import Server

CORE_TIMEOUT = 60.0  # seconds to wait for a free core, or for a cluster that has lost all cores
RELEASE_TIMEOUT = 5.0  # seconds until Ray counts the cores of killed actors as free
IDLE_SECONDS = 10.0  # without a message, after which an executor may be closed for another
ADVICE = (
    "Close other executors that hold cores, e.g. `with Ray() as executor`, ask for fewer slots, "
    "or check that the cluster runs: ray status."
)

_executors: "weakref.WeakSet[Ray]" = weakref.WeakSet()  # those of this process


class Ray(AbstractSlots):
    """Actors of a Ray cluster, one core each, which are replaced when they are lost.

    They hold their cores until `close`, or until this object is deleted, or until another `Ray`
    of this program needs them while this one is idle.

    Args:
        address: address of a cluster, e.g. "auto"; by default the cluster that this process is
            connected to, or a new one on this machine.
        num_slots: number of actors; by default the number of cores that are free at the first use.
    """

    def __init__(self, address: str | None = None, num_slots: int | None = None):
        super().__init__()
        try:
            import ray
        except ImportError as error:
            raise ImportError('Ray() needs Ray: pip install "vcmc[ray]"') from error
        if num_slots is not None and num_slots < 1:
            raise ValueError(f"Ray: num_slots must be 1 or more; got {num_slots}.")
        if not ray.is_initialized():
            options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
            if not address:
                options["num_cpus"] = max(num_cores(), num_slots or 1)
                options["include_dashboard"] = False
            ray.init(address, **options)
        self.num_slots = num_slots

    def open_slots(self) -> list[AbstractSlot]:
        _executors.add(self)
        num_free = self._wait_for_cores()
        slots = [RaySlot() for _ in range(min(self.num_slots or num_free, num_free))]
        for slot in slots:
            weakref.finalize(self, slot.abandon)
            slot.submit()
        begin = time.monotonic()
        for slot in slots:
            try:
                slot.wait_until_started(begin)
            except ExecutorLost:
                raise
            except SlotLost:  # its node was lost after its cores were counted
                slot.renew()
        return list(slots)

    def _wait_for_cores(self) -> int:
        """Return the number of free cores, after waiting for those that are wanted."""
        begin, wanted = time.monotonic(), self.num_slots or 1
        is_announced = False
        while (num_free := free_cores()) < wanted:
            if _close_idle():
                continue
            seconds = time.monotonic() - begin
            status = f"{num_free} of {all_cores()} cores of the Ray cluster are free"
            if seconds > 2 * IDLE_SECONDS and not is_announced:
                is_announced = True
                warn_user(f"{status}: waiting for {wanted}. {ADVICE}", WaitingWarning)
            if seconds > CORE_TIMEOUT:
                if num_free:
                    warn_user(f"{status}: continuing with these.", WaitingWarning)
                    break
                raise ExecutorLost(f"{status} after {seconds:.0f} s. {ADVICE}")
            time.sleep(POLL_SECONDS)
        return num_free

    def __repr__(self) -> str:
        num_slots = len(self._slots) or self.num_slots
        return f"Ray(num_slots={num_slots})" if num_slots else "Ray()"


class RaySlot(AbstractSlot):
    """One actor."""

    def __init__(self) -> None:
        self._actor: Any = None
        self._abandoned = threading.Event()

    def submit(self) -> None:
        """Ask for an actor, without waiting for it."""
        import ray

        # NPROC as in this process, for results that agree to the last bit
        environment = {**ONE_BLAS_THREAD, **FEW_MALLOC_ARENAS, "NPROC": os.environ["NPROC"]}
        # one thread works, and one gives signs of life
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
        actor = ray.remote(Server).options(runtime_env={"env_vars": environment}, **options)
        if not ray.is_initialized():  # Ray would start a new cluster
            raise ExecutorLost("the connection to the Ray cluster was closed")
        try:
            self._actor = actor.remote()
            self._heartbeat = self._actor.is_alive.remote()
        except Exception as error:
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def wait_until_started(self, begin: float) -> None:
        """Wait for the actor; raise `ExecutorLost` if it takes too long since `begin`."""
        import ray

        while True:
            try:
                if ray.wait([self._heartbeat], timeout=POLL_SECONDS)[0]:
                    ray.get(self._heartbeat, timeout=POLL_SECONDS)
                    return
            except ray.exceptions.RayError as error:
                raise SlotLost(f"{type(error).__name__}: {error}") from error
            if self._abandoned.is_set():
                raise SlotLost("the run was stopped")
            # with cores in the cluster, it starts, or waits for one that another program took
            limit = MAX_SILENCE_SECONDS if all_cores() else CORE_TIMEOUT
            if time.monotonic() > begin + limit:
                self.abandon()
                raise _not_started(begin, "no answer")

    def renew(self) -> None:
        self._abandoned.clear()
        begin = time.monotonic()
        while True:
            self._kill_actor()
            try:
                self.submit()
                return self.wait_until_started(begin)
            except ExecutorLost:
                raise
            except SlotLost as error:  # the node is going down, or memory is short
                if self._abandoned.wait(POLL_SECONDS):
                    raise
                if time.monotonic() > begin + CORE_TIMEOUT:
                    raise _not_started(begin, str(error)) from error

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        import ray

        try:
            reply = self._actor.serve.remote(message)
            last_sign = time.monotonic()
            while not ray.wait([reply], timeout=POLL_SECONDS)[0]:
                advance(0)
                last_sign = self._listen(last_sign)
            return ray.get(reply, timeout=MAX_SILENCE_SECONDS)
        except (Interrupted, SlotLost):
            raise
        except Exception as error:  # `serve` itself raises none
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def _listen(self, last_sign: float) -> float:
        """Ask the actor for a sign of life, and return when it gave the last one."""
        import ray

        if ray.wait([self._heartbeat], timeout=0)[0]:
            ray.get(self._heartbeat, timeout=POLL_SECONDS)
            self._heartbeat = self._actor.is_alive.remote()
            return time.monotonic()
        if time.monotonic() > last_sign + MAX_SILENCE_SECONDS:
            raise SlotLost(
                f"an actor of Ray has given no sign of life for {MAX_SILENCE_SECONDS:.0f} s"
            )
        return last_sign

    def abandon(self) -> None:
        self._abandoned.set()
        self._kill_actor()

    def _kill_actor(self) -> None:
        import ray

        if (actor := self._actor) and ray.is_initialized():
            with suppress(Exception):  # it is of a cluster that was shut down since
                ray.kill(actor)
        self._actor = None


def _not_started(begin: float, reason: str) -> ExecutorLost:
    return ExecutorLost(
        f"the Ray cluster has not started an actor for {time.monotonic() - begin:.0f} s, with "
        f"{free_cores()} of {all_cores()} cores free (at last: {reason.splitlines()[0]}). {ADVICE}"
    )


def free_cores() -> int:
    """Return the number of cores of the cluster that no actor and no task holds."""
    import ray

    return int(ray.available_resources().get("CPU", 0))


def all_cores() -> int:
    """Return the number of cores of the cluster."""
    import ray

    return int(ray.cluster_resources().get("CPU", 0))


def _close_idle() -> bool:
    """Close the executors of this process that hold cores and have done nothing lately.

    Return whether there were any.
    """
    idle = [other for other in _executors if other.num_open and other.idle_seconds > IDLE_SECONDS]
    num_expected = free_cores() + sum(other.num_open for other in idle)
    for other in idle:
        other.close()
    end = time.monotonic() + RELEASE_TIMEOUT
    while free_cores() < num_expected and time.monotonic() < end:
        time.sleep(POLL_SECONDS / 10)
    return bool(idle)
