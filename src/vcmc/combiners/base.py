"""What a combiner is: a method from the shards' draws to posterior draws.

To write one, subclass `AbstractCombiner` and give it a `__call__` that takes the shards' draws as
points. The laws that it must keep are in `tests/combiners/test_laws.py`; add it to the registry there.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float


class AbstractCombiner(eqx.Module):
    """A method from the shards' draws to posterior draws, all as points."""

    @abc.abstractmethod
    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, "draw dim"]:
        """Posterior draws."""
