"""How many cores this process may use, on a shared machine fewer than there are, and threads to keep them busy.

XLA and NumPy release Python's lock, so that threads do, without copies.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

NAME = "vcmc"


def num_cores() -> int:
    """Cores that this thread may run on, where the system tells; else all of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_threads(
    function: Callable[[Item], Result], items: Sequence[Item], num_threads: int | None = None
) -> Iterator[Result]:
    """The function's results, in the items' order. An exception of one item is raised here.

    >>> list(on_threads(lambda item: item**2, [1, 2, 3]))
    [1, 4, 9]
    """
    count = max(1, min(num_threads or num_cores(), len(items)))
    nested = threading.current_thread().name.startswith(NAME)
    # the shared pool's threads may all be waiting for what is nested in them
    pool = _new_pool(count) if nested else _shared_pool(count)
    futures = [pool.submit(function, item) for item in items]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
        if nested:
            pool.shutdown(wait=False)


def _new_pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix=NAME)


# Starting a thread takes two milliseconds while others hold Python's lock, and an optimizer maps many times.
_shared_pool = cache(_new_pool)
