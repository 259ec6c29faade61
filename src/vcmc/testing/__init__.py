"""Checks for your own models, aggregators, combiners, samplers and executors.

Imported by users and by tests only; imports `inference` and the layers below. Each check tests the
laws of one interface and raises `LawError`, an `AssertionError`, at the first that is broken. The
message names the law, the expected and the actual value, and a remedy. vcmc's own parts pass the
same checks in `tests/`; `docs/extending.md` shows how to write a part and check it.
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
