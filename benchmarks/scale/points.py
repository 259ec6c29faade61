"""The points of the curves: what is varied, over which values, and for how long at most."""

from collections.abc import Iterator
from typing import NamedTuple

SWEEPS = ("rows", "shards", "coordinates", "groups", "executors", "network")
CURVES = SWEEPS[:4]  # those that are fitted

# values of each sweep, in full and quick
VALUES: dict[str, tuple[tuple, tuple]] = {
    "rows": (
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
        (10_000, 30_000, 100_000, 300_000),
    ),
    "shards": ((1, 3, 10, 30, 100, 300, 1000), (1, 4, 16, 64)),
    "coordinates": ((5, 15, 50, 150, 500, 1500, 5000), (5, 20, 80, 320)),
    "groups": ((100, 1000, 10_000, 100_000, 1_000_000), (100, 300, 1000, 3000)),
    "executors": (
        tuple(f"{name}({n})" for name in ("Processes", "Dask", "Ray") for n in (1, 2, 4)),
        tuple(f"{name}({n})" for name in ("Processes", "Dask", "Ray") for n in (1, 2)),
    ),
    "network": (
        ("2 processes", "4 processes", "16 machines", "100 machines"),
        ("2 processes", "16 machines", "20 machines"),
    ),
}
# Seconds after which a point is stopped: their sum is far above the 40 minutes or so that all take
# on two idle cores (estimated from quick runs). Limits are there for what goes wrong.
MAX_SECONDS, MAX_QUICK_SECONDS = 300, 240
LARGEST = {"rows": 10_000_000, "groups": 1_000_000}
MAX_LARGEST_SECONDS = 600


class Point(NamedTuple):
    """One value of a sweep, which is measured in a process of its own."""

    sweep: str
    value: int | str
    is_quick: bool

    @property
    def name(self) -> str:
        """Its name as a file."""
        words = f"{self.sweep}-{self.value}".replace("(", "-").replace(")", "")
        return words.replace(" ", "-").lower()

    @property
    def max_seconds(self) -> int:
        """Seconds after which it is stopped."""
        if self.is_quick:
            return MAX_QUICK_SECONDS
        return MAX_LARGEST_SECONDS if LARGEST.get(self.sweep) == self.value else MAX_SECONDS


def points(sweeps: list[str], is_quick: bool) -> Iterator[Point]:
    """Yield the points of some sweeps."""
    for sweep in sweeps:
        for value in VALUES[sweep][is_quick]:
            yield Point(sweep, value, is_quick)
