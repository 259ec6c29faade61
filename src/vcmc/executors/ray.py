"""Actors of a Ray cluster, each a slot."""

import os
from collections.abc import Callable
from typing import Any

from .._runtime import num_cores
from ..errors import SlotLost
from .processes import FEW_ARENAS, ONE_THREAD
from .slots import AbstractSlot, AbstractSlots, Server


class Ray(AbstractSlots):
    """Actors of a Ray cluster, which Ray starts again when they are lost.

    Args:
        address: that of a cluster, such as "auto"; without it, the one that this process is connected to, or one on this machine.
        num_slots: how many actors, of one core each; by default as many as the cluster has cores.
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
            here = (
                {}
                if address
                else {"num_cpus": max(num_cores(), num_slots or 1), "include_dashboard": False}
            )
            ray.init(address, configure_logging=False, log_to_driver=False, **here)
        self.num_slots = num_slots or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def open_slots(self) -> list[AbstractSlot]:
        return [RaySlot() for _ in range(self.num_slots)]

    def __repr__(self) -> str:
        return f"Ray(num_slots={self.num_slots})"


class RaySlot(AbstractSlot):
    """An actor."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        import ray

        self.abandon()
        environment = {
            **ONE_THREAD,
            **FEW_ARENAS,
            "NPROC": os.environ["NPROC"],
        }  # the same programs as here, to the last bit
        options = {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 2}
        actor = ray.remote(Server).options(runtime_env={"env_vars": environment}, **options)
        self._actor: Any = actor.remote()

    def call(self, message: bytes, advance: Callable[[int], None]) -> bytes:
        del advance
        import ray

        try:
            return ray.get(self._actor.serve.remote(message))
        except Exception as error:  # `serve` itself raises none
            raise SlotLost(f"{type(error).__name__}: {error}") from error

    def abandon(self) -> None:
        import ray

        if (actor := getattr(self, "_actor", None)) and ray.is_initialized():
            ray.kill(actor)
            self._actor = None
