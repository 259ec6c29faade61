"""Time functions side by side: taken in turns, so that a busy moment of the machine hits all of them."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping


def in_turns(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each function; a first round, which compiles and warms caches, is left out."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(1 + repeats):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def say(line: str = "") -> None:
    """One line of a report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
