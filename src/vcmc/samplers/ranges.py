"""Process ranges of rows on all cores, for samplers in NumPy, which releases Python's lock."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array
from numpy.random import SFC64, Generator, SeedSequence

from .._runtime import new_pool, num_cores

Part = TypeVar("Part")


def cut(num_rows: int, size: int) -> list[slice]:
    """Cut rows into ranges of about `size`, the same on every machine, as each has its own RNG."""
    count = max(1, round(num_rows / size))
    edges = np.linspace(0, num_rows, count + 1).astype(int)
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def generators(key: Array, count: int) -> list[Generator]:
    """Return independent generators that are determined by a JAX key."""
    entropy = np.asarray(jax.random.key_data(key)).tolist()
    return [Generator(SFC64(seed)) for seed in SeedSequence(entropy).spawn(count)]


def on_each(function: Callable[[Part], None], parts: Sequence[Part]) -> None:
    """Call a function on every part: this thread and helper threads take parts from one queue."""
    queue = iter(parts)  # next() on a list's iterator is atomic under Python's lock

    def work() -> None:
        for part in queue:
            function(part)

    helpers = [_helpers().submit(work) for _ in range(min(len(parts), num_cores()) - 1)]
    work()
    for helper in helpers:
        helper.result()


@lru_cache
def _helpers() -> ThreadPoolExecutor:
    """Return the pool of the process, shared by concurrent chains."""
    return new_pool(max(1, num_cores() - 1), "vcmc-range")
