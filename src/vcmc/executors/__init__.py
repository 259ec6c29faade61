"""Executors: threads, processes or a cluster that sample and evaluate shards.

Imported by `inference`, `testing` and above; imports `data` and below, and no other menu.
"""

from ..errors import ExecutorLost, SlotLost
from .base import AbstractExecutor
from .dask import Dask
from .futures import Futures
from .local import Local
from .processes import Processes
from .ray import Ray
from .resolve import executor_of

__all__ = [
    "AbstractExecutor",
    "Dask",
    "ExecutorLost",
    "Futures",
    "Local",
    "Processes",
    "Ray",
    "SlotLost",
    "executor_of",
]
