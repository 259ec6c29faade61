"""Checks that anyone can run on their own models, aggregators, combiners, samplers and executors.

Each holds the laws of its menu, and raises `LawError`, which is an `AssertionError`, at the first that is broken: it says which law, what
was expected, what was got and what to try. vcmc's own parts pass the same checks, in `tests/`; `docs/extending.md` shows how to write a
part and check it. `import vcmc` does not import this folder.
"""

from .aggregator import check_aggregator
from .combiner import check_combiner
from .executor import check_executor
from .law import LawError
from .model import check_model
from .sampler import check_sampler

__all__ = [
    "LawError",
    "check_aggregator",
    "check_combiner",
    "check_executor",
    "check_model",
    "check_sampler",
]
