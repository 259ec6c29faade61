"""Share ranges of rows among cores, for samplers written in NumPy, which releases Python's lock."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array
from numpy.random import SFC64, Generator, SeedSequence

from .._runtime import num_cores

Part = TypeVar("Part")


def cut(num_rows: int, size: int) -> list[slice]:
    """Ranges of about `size` rows, the same on every machine: each has its own random numbers."""
    count = max(1, round(num_rows / size))
    edges = np.linspace(0, num_rows, count + 1).astype(int)
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def generators(key: Array, count: int) -> list[Generator]:
    """Independent generators that are determined by a JAX key."""
    entropy = np.asarray(jax.random.key_data(key)).tolist()
    return [Generator(SFC64(seed)) for seed in SeedSequence(entropy).spawn(count)]


def on_each(do: Callable[[Part], None], parts: Sequence[Part]) -> None:
    """Call `do` on every part: this thread and the helpers take parts from one queue."""
    queue = iter(parts)  # next() on a list's iterator is one step under Python's lock

    def work() -> None:
        for part in queue:
            do(part)

    helpers = [_helpers().submit(work) for _ in range(min(len(parts), num_cores()) - 1)]
    work()
    for helper in helpers:
        helper.result()


@lru_cache
def _helpers() -> ThreadPoolExecutor:
    """One pool for the process: chains that run side by side share it and do not crowd the cores."""
    return ThreadPoolExecutor(max(1, num_cores() - 1), thread_name_prefix="vcmc-range")
