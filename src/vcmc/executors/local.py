"""Threads in this process: XLA releases Python's lock, so they keep all cores busy without copies."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from ..cores import num_cores
from .base import AbstractExecutor, Item, Result

NAME = "vcmc"


class Local(AbstractExecutor):
    """Threads in this process, by default one per core.

    >>> list(Local(num_threads=2).map(lambda item: item**2, [1, 2, 3]))
    [1, 4, 9]
    """

    num_threads: int | None = None

    def __check_init__(self) -> None:
        if self.num_threads is not None and self.num_threads < 1:
            raise ValueError(f"Local: num_threads must be 1 or more; got {self.num_threads}.")

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        num_threads = min(self.num_threads or num_cores(), len(items))
        nested = threading.current_thread().name.startswith(NAME)
        # the shared pool's threads may all be waiting for what is nested in them
        pool = _new_pool(num_threads) if nested else _shared_pool(num_threads)
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
