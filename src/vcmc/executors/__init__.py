"""Executors: where shards are sampled and evaluated."""

from concurrent.futures import Executor
from typing import Any

from ..errors import SlotLost
from .base import AbstractExecutor
from .dask import Dask
from .futures import Futures
from .local import Local
from .processes import Processes
from .ray import Ray

__all__ = [
    "AbstractExecutor",
    "Dask",
    "Futures",
    "Local",
    "Processes",
    "Ray",
    "SlotLost",
    "executor_of",
]


def executor_of(given: Any) -> AbstractExecutor:
    """An executor from what a user gives: nothing means threads; a pool or a Dask client will do."""
    if given is None:
        return Local()
    if isinstance(given, AbstractExecutor):
        return given
    if isinstance(given, Executor):
        return Futures(given)
    if type(given).__module__.startswith("distributed"):
        return Dask(given)
    raise TypeError(
        "executor must be such as vcmc.executors.Local(), Processes(4), Dask(address), Ray() or a concurrent.futures.Executor; got "
        f"{given!r}."
    )
