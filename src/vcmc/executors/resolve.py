"""The executor for the `executor` argument of a public function."""

from concurrent.futures import Executor
from typing import Any

from .base import AbstractExecutor
from .dask import Dask
from .futures import Futures
from .local import Local


def executor_of(argument: Any) -> AbstractExecutor:
    """Return the executor for an argument: None means threads; pools and Dask clients are wrapped.

    >>> executor_of(None)
    Local(num_threads=None)
    """
    if argument is None:
        return Local()
    if isinstance(argument, AbstractExecutor):
        return argument
    if isinstance(argument, Executor):
        return Futures(argument)
    if type(argument).__module__.startswith("distributed"):
        return Dask(argument)
    raise TypeError(
        "executor must be an Executor instance, e.g. vcmc.executors.Local(), Processes(4), "
        "Dask(address), Ray(), or a concurrent.futures.Executor; "
        f"got {argument!r}."
    )
