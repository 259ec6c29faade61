r"""The full-data target: log density and score of points, summed over shards.

$$\log p(u \mid X) = \sum_k \ell_k(u) + \text{const}, \qquad \tau = 1/K.$$

Whoever holds a `Target` sees points, log densities and scores, and never a row.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.cache import ShardCache, Task, Work
from .data.shard import AbstractPartition, Shard
from .density import Subposterior, evaluate, hessian_products, prepare
from .model import Model
from .space import Point


@runtime_checkable
class Mapper(Protocol):
    """Anything that does work on tasks, and returns what comes out in their order: the executor that the target runs on."""

    def map(self, work: Work, tasks: Sequence[Task], shard_cache: ShardCache) -> Iterable[Any]: ...


NUM_TASKS = 64  # of one evaluation, at most: the same on all executors, so that sums are equal to the last bit
SMALL, NUM_PIECES = 2**28, 2  # below so many bytes, rows are copied and evaluated in so few pieces


class Target:
    """The full log density of a model, evaluated shard by shard on an executor."""

    def __init__(self, model: Model, shards: AbstractPartition | Sequence[Shard], executor: Mapper):
        self.shard_cache = ShardCache(model, shards)
        self.executor = executor

    @classmethod
    def fitted(cls, model: Model, partition: AbstractPartition, executor: Mapper) -> "Target":
        """The target of a model that takes its point estimates, if it has any, from all shards."""
        target = cls(model, partition, executor)
        target.shard_cache.model = model.fitted(target.shard_cache.shards)
        return target

    @property
    def model(self) -> Model:
        """The model, with its point estimates."""
        return self.shard_cache.model

    @property
    def num_shards(self) -> int:
        """How many shards there are."""
        return self.shard_cache.num_shards

    @cached_property
    def pilot(self) -> Subposterior:
        """The log density of one shard, which is always at hand."""
        return self.shard_cache.density(0)

    def __call__(
        self, points: Float[Array, "point dim"], only: Sequence[int] | None = None
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Log densities and scores at a batch of points.

        With `only`, those of some shards stand for all: an unbiased estimate, if the shards are chosen at random.
        """
        tasks, joined = self._pieces if only is None else (_cut(only, NUM_TASKS), 0)
        work = partial(_evaluate, points=points, joined=joined)
        log_densities, scores = _sum(self.executor.map(work, tasks, self.shard_cache))
        scale = 1 if only is None else self.num_shards / len(only)
        return jnp.asarray(scale * log_densities), jnp.asarray(scale * scores)

    def of_shard(
        self, shard: int, points: Float[Array, "point dim"]
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Log densities and scores of one shard at a batch of points."""
        work = partial(_evaluate, points=points, joined=0)
        ((log_densities, scores),) = self.executor.map(work, [Task((shard,))], self.shard_cache)
        return jnp.asarray(log_densities), jnp.asarray(scores)

    def hessian_products(
        self, point: Point, directions: Float[Array, "direction dim"]
    ) -> Float[Array, "direction dim"]:
        """How the score at a point changes along directions: products of the Hessian with them."""
        tasks, joined = self._pieces
        work = partial(_hessian_products, point=point, directions=directions, joined=joined)
        return jnp.asarray(np.sum(list(self.executor.map(work, tasks, self.shard_cache)), axis=0))

    def prepare(self) -> None:
        """Compile what evaluates many points, where that happens in this process."""
        tasks, joined = self._pieces
        prepare(next(iter(_densities(self.shard_cache, tasks[0], joined))))

    @cached_property
    def _pieces(self) -> tuple[list[Task], int]:
        """What is evaluated in one go, and of how many shards each piece is joined, if it is.

        Small shards are joined to larger ones, as calling a compiled function takes longer than evaluating few rows.
        """
        every = range(self.num_shards)
        if self.num_shards <= NUM_PIECES or not self.shard_cache.partition.is_small(SMALL):
            return _cut(every, NUM_TASKS), 0
        pieces = _cut(every, NUM_PIECES)
        return pieces, len(pieces[0].shards)


def _cut(shards: Sequence[int], num_parts: int) -> list[Task]:
    size = -(-len(shards) // num_parts)
    return [Task(tuple(shards[first : first + size])) for first in range(0, len(shards), size)]


def _densities(shard_cache: ShardCache, task: Task, joined: int) -> Iterable[Subposterior]:
    if joined:
        return [shard_cache.joined(task.shards, joined)]
    return (shard_cache.density(shard) for shard in task.shards)


def _evaluate(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], points: Any, joined: int
) -> tuple[np.ndarray, np.ndarray]:
    del advance
    return _sum(
        evaluate(density, jnp.asarray(points)) for density in _densities(shard_cache, task, joined)
    )


def _hessian_products(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    point: Any,
    directions: Any,
    joined: int,
) -> np.ndarray:
    del advance
    point, directions = jnp.asarray(point), jnp.asarray(directions)
    return np.sum(
        [
            hessian_products(density, point, directions)
            for density in _densities(shard_cache, task, joined)
        ],
        axis=0,
    )


def _sum(parts: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    log_densities, scores = zip(*parts, strict=True)
    return np.sum(log_densities, axis=0), np.sum(scores, axis=0)


class Minibatch:
    r"""An unbiased estimate of a target, from the rows of a few shards chosen at random.

    A sum over few shards is far off, but hardly more so at one point than at another. So what is estimated is
    the difference to the straight line through an anchor $a$, where the full target is known:

    $$\log p(u) \approx \log p(a) + g^\top (u - a) + \frac K m \sum_{k \in m} \bigl[\ell_k(u) - \ell_k(a) - g_k^\top (u - a)\bigr].$$
    """

    def __init__(self, target: Target, anchor: Point, num_shards: int, seed: int | tuple[int, ...]):
        self.target = target
        self.anchor = anchor
        self.num_shards = num_shards
        self._value, self._score = (part[0] for part in target(anchor[None]))
        self._generator = np.random.default_rng(seed)

    def __call__(
        self, points: Float[Array, "point dim"]
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Log densities and scores at a batch of points, with shards chosen anew for every call."""
        every = self.target.num_shards
        only = self._generator.choice(every, self.num_shards, replace=False).tolist()
        values, scores = self.target(jnp.concatenate([points, self.anchor[None]]), only)
        rest = self._score - scores[-1]
        return self._value + values[:-1] - values[-1] + (
            points - self.anchor
        ) @ rest, rest + scores[:-1]
