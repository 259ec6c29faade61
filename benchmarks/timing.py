"""Timing and printing, shared by the benchmark scripts; not a benchmark itself."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping


def in_turns(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each function.

    Functions take turns, so that a busy moment of the machine affects all of them. A first round,
    which compiles and warms caches, is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(1 + repeats):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def say(line: str = "") -> None:
    """Print a line of a report at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
