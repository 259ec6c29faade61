"""A model and its shards, in any process.

A task names the shards that it needs, and carries no rows. The process that runs it has a
`ShardCache`, which loads these shards on first use and evaluates their log densities.
"""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ..density import Power, Subposterior
from ..model import Model
from .pieces import Piece, joined_piece
from .shard import AbstractPartition, InMemoryShards, Shard, joined

MAX_KEPT_BYTES = 2**27  # of shards that are not in memory anyway and are kept for the next task


class Task(NamedTuple):
    """One unit of work.

    Attributes:
        shards: the shards whose rows it needs.
        chain: for sampling, the number of the chain.
        beginning: for sampling, the first part of the chain, if it was sampled before.
        labels: for local draws that are written to files, the labels of the shard's groups.
        piece: for an evaluation, the rows of the shards that are evaluated together.
    """

    shards: tuple[int, ...]
    chain: int = 0
    beginning: Any = None
    labels: np.ndarray | None = None
    piece: Piece | None = None


Work = Callable[["ShardCache", Task, Callable[[int], None]], Any]
"""The function that runs a task; its last argument reports the number of steps done."""


class LoadedShards:
    """Shards by key, safe to share among threads; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._shards: OrderedDict[Hashable, Shard] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, load: Callable[[], Shard], max_bytes: int | None) -> Shard:
        """Return the shard of a key; if it is new, load it, and drop others above `max_bytes`."""
        with self._lock:
            if key in self._shards:
                self._shards.move_to_end(key)
                return self._shards[key]
        loaded = load()  # outside the lock: other threads may load at the same time
        with self._lock:
            loaded = self._shards.setdefault(key, loaded)
            if max_bytes is not None:
                while len(self._shards) > 1 and self._num_bytes() > max_bytes:
                    self._shards.popitem(last=False)
        return loaded

    def found(self, key: Hashable) -> Shard | None:
        """Return the shard of a key, if it is loaded."""
        with self._lock:
            return self._shards.get(key)

    def _num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self._shards.values())


class ShardCache:
    """A model, a partition of its rows, and the shards that were used last.

    Attributes:
        key: identifies the model and the partition in every process.
    """

    def __init__(
        self,
        model: Model,
        partition: AbstractPartition | Sequence[Shard],
        key: str | None = None,
        loaded: LoadedShards | None = None,
    ):
        if not isinstance(partition, AbstractPartition):
            partition = InMemoryShards(dict(enumerate(partition)), len(partition))
        self.model = model
        self.partition = partition
        self.key = key or uuid.uuid4().hex
        self._loaded = loaded or LoadedShards()

    def __reduce__(self) -> Any:
        return ShardCache, (self.model, self.partition, self.key)

    def with_model(self, model: Model) -> "ShardCache":
        """Return a cache of another model, with the same partition and the same loaded shards."""
        return ShardCache(model, self.partition, loaded=self._loaded)

    @property
    def num_shards(self) -> int:
        """Number of shards of the whole partition."""
        return self.partition.num_shards

    @property
    def shards(self) -> "ShardSequence":
        """The shards, each loaded when it is indexed."""
        return ShardSequence(self)

    def subset(self, shards: Sequence[int]) -> "ShardCache":
        """Return the part to send to a process that works on these shards."""
        return ShardCache(self.model, self.partition.subset(shards), self.key)

    def merge(self, subset: "ShardCache") -> None:
        """Add shards that were sent later."""
        if isinstance(self.partition, InMemoryShards) and isinstance(
            subset.partition, InMemoryShards
        ):
            self.partition.add(subset.partition)

    def shard(self, number: int) -> Shard:
        """Return a shard, loaded if need be."""
        return self._load(number, lambda: self.partition.load(number))

    def density(
        self,
        shard: int,
        prior_power: float | tuple[float, float] | None = None,
        likelihood_power: float = 1.0,
    ) -> Subposterior:
        """Return the log density of a shard with the prior and the likelihood raised to powers.

        By default the prior is raised to 1/K. A pair of powers is that of the prior and that of the
        Jacobian, for models with local parameters.
        """
        power = 1 / self.num_shards if prior_power is None else prior_power
        rows = self.shards[shard]
        if likelihood_power != 1:
            rows = rows.powered(likelihood_power)
        return Subposterior(self.model, rows, self._power(power))

    def joint_density(self, shards: tuple[int, ...], num_padded: int) -> Subposterior:
        """Return the sum of the log densities of several shards of one shape.

        The rows are padded as if there were `num_padded` shards, so that all sums share a shape.
        """

        def join() -> Shard:
            parts = [self.shards[shard] for shard in shards]
            padding = parts[0].powered(0.0)
            return joined([*parts, *[padding] * (num_padded - len(parts))])

        joint = self._load((shards, num_padded), join)
        return Subposterior(self.model, joint, self._power(len(shards) / self.num_shards))

    def piece_density(self, shards: tuple[int, ...], piece: Piece) -> Subposterior:
        """Return the log density of the rows of a piece; its shards are not kept besides it."""

        def join() -> Shard:
            found = (self._loaded.found(shard) or self.partition.load(shard) for shard in shards)
            return joined_piece(found, piece)

        joint = self._load((shards, piece.ranges), join)
        return Subposterior(self.model, joint, self._power(piece.prior_power))

    def _power(self, power: float | tuple[float, float]) -> Power:
        """Return a power as an array: of one shape for all densities of a model."""
        is_pair = self.model.local is not None and not isinstance(power, tuple)
        return jax.device_put(np.asarray((power, power) if is_pair else power, float))

    def _load(self, key: Hashable, load: Callable[[], Shard]) -> Shard:
        max_bytes = max(MAX_KEPT_BYTES, self.partition.max_kept_bytes)
        return self._loaded.get(key, load, None if self.partition.in_memory else max_bytes)


class ShardSequence:
    """The shards of a cache, each loaded when it is indexed."""

    def __init__(self, shard_cache: ShardCache):
        self._shard_cache = shard_cache

    def __len__(self) -> int:
        return self._shard_cache.num_shards

    def __iter__(self) -> Iterator[Shard]:
        return (self[shard] for shard in range(len(self)))

    def __getitem__(self, shard: int, /) -> Shard:
        if not 0 <= shard < len(self):
            raise IndexError(f"shard must be from 0 to {len(self) - 1}; got {shard}.")
        return self._shard_cache.shard(shard)
