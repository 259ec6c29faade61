"""A model and its shards, wherever they are worked on: rows are loaded there when they are first needed, and never travel with a task.

A task names the shards that it needs. Whoever runs it is given a `ShardCache`, in this process or in another, and asks it for those shards'
log densities.
"""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..density import Subposterior
from ..model import Model
from .shard import AbstractPartition, InMemoryShards, Shard

MAX_BYTES = 2**27  # of shards that are loaded from elsewhere and kept for the next task


class Task(NamedTuple):
    """A piece of work: the shards whose rows it needs, and for sampling the number of a chain and what there is of it."""

    shards: tuple[int, ...]
    chain: int = 0
    begun: Any = None


Work = Callable[["ShardCache", Task, Callable[[int], None]], Any]
"""What is done in a task, given the holding, the task, and what to call with the number of steps done."""


class ShardCache:
    """A model and a partition of its rows, of which shards that were used last are kept.

    Attributes:
        key: tells holdings apart, in whatever process.
    """

    def __init__(
        self, model: Model, partition: AbstractPartition | Sequence[Shard], key: str | None = None
    ):
        if not isinstance(partition, AbstractPartition):
            partition = InMemoryShards(dict(enumerate(partition)), len(partition))
        self.model = model
        self.partition = partition
        self.key = key or uuid.uuid4().hex
        self._kept: OrderedDict[Any, Shard] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return ShardCache, (self.model, self.partition, self.key)

    @property
    def num_shards(self) -> int:
        """How many shards there are, here and elsewhere."""
        return self.partition.num_shards

    @property
    def shards(self) -> "ShardSequence":
        """The shards, each of which is loaded when it is looked at."""
        return ShardSequence(self)

    def part(self, shards: Sequence[int]) -> "ShardCache":
        """What must travel so that these shards can be worked on elsewhere."""
        return ShardCache(self.model, self.partition.part(shards), self.key)

    def merge(self, part: "ShardCache") -> None:
        """Take in shards that came later."""
        if isinstance(self.partition, InMemoryShards) and isinstance(
            part.partition, InMemoryShards
        ):
            self.partition.shards.update(part.partition.shards)

    def density(
        self, shard: int, prior_power: float | None = None, likelihood_power: float = 1.0
    ) -> Subposterior:
        """The log density of a shard, with the prior and the likelihood raised to powers; by default the prior to 1/K."""
        power = 1 / self.num_shards if prior_power is None else prior_power
        found = self.shards[shard]
        if likelihood_power != 1:
            found = Shard(found.rows, likelihood_power * found.weights)
        return Subposterior(self.model, found, jnp.asarray(power))

    def joined(self, shards: tuple[int, ...], count: int) -> Subposterior:
        """The log density of several shards of one shape as if they were one, filled up as if there were `count` of them."""

        def join() -> Shard:
            found = [self.shards[shard] for shard in shards]
            padding = Shard(found[0].rows, jnp.zeros_like(found[0].weights))
            found += [padding] * (count - len(found))
            return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *found)

        shard = self.keep((shards, count), join)
        return Subposterior(self.model, shard, jnp.asarray(len(shards) / self.num_shards))

    def keep(self, key: Any, load: Callable[[], Shard]) -> Shard:
        """What is kept under a key, or is now loaded; where rows are not in memory anyway, what was used longest ago makes room."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        loaded = load()  # outside the lock: others may load at the same time
        with self._lock:
            loaded = self._kept.setdefault(key, loaded)
            if not self.partition.in_memory:
                while (
                    len(self._kept) > 1
                    and sum(each.num_bytes for each in self._kept.values()) > MAX_BYTES
                ):
                    self._kept.popitem(last=False)
        return loaded


class ShardSequence:
    """The shards of a holding, each loaded when it is looked at."""

    def __init__(self, shard_cache: ShardCache):
        self.shard_cache = shard_cache

    def __len__(self) -> int:
        return self.shard_cache.num_shards

    def __iter__(self) -> Iterator[Shard]:
        return (self[shard] for shard in range(len(self)))

    def __getitem__(self, shard: int, /) -> Shard:
        if not 0 <= shard < len(self):
            raise IndexError(f"shard must be from 0 to {len(self) - 1}; got {shard}.")
        return self.shard_cache.keep(shard, lambda: self.shard_cache.partition.load(shard))
