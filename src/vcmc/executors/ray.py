"""Actors of a Ray cluster, each of which is a slot."""

import os
from collections.abc import Callable
from typing import Any

from .._runtime import num_cores
from ..errors import SlotLost
from .processes import FEW_MALLOC_ARENAS, ONE_BLAS_THREAD
from .slots import AbstractSlot, AbstractSlots
from .worker import Server


class Ray(AbstractSlots):
    """Actors of a Ray cluster, which Ray restarts when they are lost.

    Args:
        address: address of a cluster, e.g. "auto"; by default the cluster that this process is
            connected to, or a new one on this machine.
        num_slots: number of actors, of one core each; by default the number of the cluster's cores.
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
        self.num_slots = num_slots or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def open_slots(self) -> list[AbstractSlot]:
        return [RaySlot() for _ in range(self.num_slots)]

    def __repr__(self) -> str:
        return f"Ray(num_slots={self.num_slots})"


class RaySlot(AbstractSlot):
    """One actor."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        import ray

        self.abandon()
        # NPROC as in this process, for results that agree to the last bit
        environment = {**ONE_BLAS_THREAD, **FEW_MALLOC_ARENAS, "NPROC": os.environ["NPROC"]}
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
