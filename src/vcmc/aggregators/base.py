"""What an aggregator is: a map from one point per shard to one point.

To write one, subclass `AbstractAggregator` with fields that hold its weights (float arrays are what
a variational method optimises) and a `__call__` for a single point per shard. The laws that it must
keep are in `tests/aggregators/test_laws.py`; add it to the registry there.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..typing import Point


class AbstractAggregator(eqx.Module):
    """A map from one point per shard to one point."""

    @abc.abstractmethod
    def __call__(self, points: Float[Array, "shard dim"]) -> Point:
        """The point that stands for one point of every shard."""
