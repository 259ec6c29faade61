"""All problems by name: flat and hierarchical ones, in full or in another size."""

from dataclasses import replace

from grouped_problems import GROUPED
from problems import PROBLEMS, Problem

LARGE_ROWS = 100_000  # from here on chains on all rows take fewer steps
NUM_SHARDS = 10  # of a flat problem in another size, unless its name says so


def problem_of(name: str) -> Problem:
    """Return a problem: `logistic`, `logistic@ROWS`, `logistic@ROWS/SHARDS`, `planes@GROUPS`."""
    base, _, size = name.partition("@")
    make = GROUPED[base] if base in GROUPED else PROBLEMS[base]
    if not size:
        return make()
    number, _, num_shards = size.partition("/")
    if base in GROUPED:
        return replace(make(int(number)), name=name)
    return replace(
        make(int(number)),
        name=name,
        num_shards=int(num_shards or NUM_SHARDS),
        is_large=int(number) >= LARGE_ROWS,
    )
