"""What an executor is: something that maps a function over shards, and must not change the answer."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import equinox as eqx

Item = TypeVar("Item")
Result = TypeVar("Result")


class AbstractExecutor(eqx.Module):
    """Where the two operations on a shard, sampling and evaluating, run."""

    @abc.abstractmethod
    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The function's results, in the items' order. An exception of one item is raised here."""
