r"""The full-data target: log density and score of points, summed over shards.

$$\log p(u \mid X) = \sum_k \ell_k(u) + \text{const}, \qquad \tau = 1/K.$$

A `Target` takes points and returns log densities and scores; no rows pass through it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.cache import MAX_KEPT_BYTES, ShardCache, Task, Work
from .data.pieces import Piece, cut_pieces, piece_length
from .data.shard import AbstractPartition, Shard
from .density import (
    MAX_DIRECTIONS,
    Directions,
    Points,
    Subposterior,
    Vector,
    evaluate,
    hessian_products,
    prepare,
)
from .linalg.frames import LocalDensity, find_frame, is_near
from .linalg.whitening import Whitening
from .model import MAX_CACHED_BYTES, Model
from .space import Point


@runtime_checkable
class Mapper(Protocol):
    """An executor: maps work over tasks and returns the results in their order."""

    def map(self, work: Work, tasks: Sequence[Task], shard_cache: ShardCache) -> Iterable[Any]: ...


MAX_TASKS = 64  # per evaluation: the same on all executors, so that sums are equal to the last bit
MAX_JOINED_BYTES = 2**28  # of all rows; smaller data are copied into joint shards for evaluation
MAX_UNJOINED = 16  # shards, each of which a core's cache holds
MAX_PRODUCTS = 2**25  # numbers that all tasks return at once, 256 MB, where a Hessian is computed
NUM_JOINED_TASKS = 2  # tasks of an evaluation of joined shards: one per core of a small machine


class Target:
    """The full log density of a model, evaluated shard by shard on an executor."""

    def __init__(
        self,
        model: Model,
        shards: AbstractPartition | Sequence[Shard] | ShardCache,
        executor: Mapper,
        pilot_shard: int = 0,
    ):
        if isinstance(shards, ShardCache):
            self.shard_cache = shards.with_model(model)
        else:
            self.shard_cache = ShardCache(model, shards)
        self.executor = executor
        self.pilot_shard = pilot_shard
        self._frame: Whitening | None = None

    @classmethod
    def fitted(
        cls,
        model: Model,
        partition: AbstractPartition,
        executor: Mapper,
        pilot_shard: int = 0,
    ) -> "Target":
        """Return the target of a model with its point estimates computed from all shards."""
        shard_cache = ShardCache(model, partition)
        return cls(model.fitted(shard_cache.shards), shard_cache, executor, pilot_shard)

    @property
    def model(self) -> Model:
        """The model, with its point estimates."""
        return self.shard_cache.model

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return self.shard_cache.num_shards

    @cached_property
    def pilot(self) -> Subposterior:
        """The log density of one shard, for checks and searches that need no other."""
        return self.shard_cache.density(self.pilot_shard)

    def __call__(
        self, points: Points, only: Sequence[int] | None = None
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Return log densities and scores at a batch of points.

        With `only`, the sum over these shards is scaled up to all: an unbiased estimate, if they
        are chosen at random.
        """
        tasks, num_joined = self._tasks if only is None else (cut_tasks(only, MAX_TASKS), 0)
        work = partial(_evaluate, points=points, num_joined=num_joined)
        log_densities, scores = _sum(self.executor.map(work, tasks, self.shard_cache))
        scale = 1 if only is None else self.num_shards / len(only)
        return jax.device_put(scale * log_densities), jax.device_put(scale * scores)

    def of_shard(
        self, shard: int, points: Points
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Return the log densities and scores of one shard at a batch of points."""
        work = partial(_evaluate, points=points, num_joined=0)
        ((log_densities, scores),) = self.executor.map(work, [Task((shard,))], self.shard_cache)
        return jax.device_put(log_densities), jax.device_put(scores)

    def hessian_products(
        self, point: Vector, directions: Directions
    ) -> Float[Array, "direction dim"]:
        """Return the products of the Hessian at a point with directions."""
        tasks, num_joined = self._tasks
        work = partial(_hessian_products, point=point, directions=directions, num_joined=num_joined)
        products = list(self.executor.map(work, tasks, self.shard_cache))
        return jax.device_put(np.sum(products, axis=0))

    def curvature(self, point: Float[np.ndarray, " dim"]) -> Float[np.ndarray, "dim dim"]:
        """Return minus the Hessian at a point, from products with some directions at a time."""
        dim = len(point)
        parts = max(1, MAX_PRODUCTS // (len(self._tasks[0]) * dim * MAX_DIRECTIONS))
        # whole batches, the last padded by zeros, so that all share one program
        batch = MAX_DIRECTIONS * parts if dim > MAX_DIRECTIONS * parts else dim
        matrix = np.empty((dim, dim))
        for first in range(0, dim, batch):
            directions = np.eye(batch, dim, first)
            products = self.hessian_products(jnp.asarray(point), jnp.asarray(directions))
            matrix[first : first + batch] = -np.asarray(products)[: dim - first]
        return (matrix + matrix.T) / 2

    def frame_near(self, point: Float[np.ndarray, " dim"]) -> Whitening | None:
        """Return coordinates in which the curvature near a point is close to the identity.

        The last frame is kept for all points near it: it costs products with all directions. None
        if the curvature is not finite.
        """
        if self._frame is None or not is_near(self._frame, point):
            self._frame = find_frame(LocalDensity(self._evaluate_numpy, self.curvature), point)
        return self._frame

    def _evaluate_numpy(
        self, points: Float[np.ndarray, "point dim"]
    ) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
        log_densities, scores = self(jnp.asarray(points))
        return np.asarray(log_densities), np.asarray(scores)

    def prepare(self) -> None:
        """Compile the programs for batches of points, for executors in this process."""
        tasks, num_joined = self._tasks
        prepare(next(iter(_densities(self.shard_cache, tasks[0], num_joined))))

    @property
    def piece_counts(self) -> Sequence[int]:
        """The numbers of rows of uneven shards that are cut into pieces; none if rows are many.

        With local parameters, rows are laid out by groups, and shards are evaluated as they are.
        """
        partition = self.shard_cache.partition
        counts = partition.uneven_counts
        if counts is None or self.model.local is not None:
            return []
        max_bytes = MAX_JOINED_BYTES if partition.in_memory else MAX_KEPT_BYTES // 2
        return [] if sum(counts) * row_bytes(self.pilot.shard) > max_bytes else counts

    def length_of_pieces(self, counts: Sequence[int]) -> int:
        """Return the length of pieces: if possible that of the pilot, which has their programs."""
        pilot = self.pilot.shard
        return piece_length(sum(counts), row_bytes(pilot), len(pilot.weights))

    @cached_property
    def _tasks(self) -> tuple[list[Task], int]:
        """The tasks of an evaluation, and the number of shards joined in each (0: none).

        Many small shards are joined, as calling a compiled function takes longer than evaluating
        few rows. Few small ones are not: joint shards have a shape of their own, and so another
        program. With local parameters, evaluating takes much longer than calling.
        """
        if counts := self.piece_counts:
            return piece_tasks(cut_pieces(counts, self.length_of_pieces(counts))), 0
        shards = range(self.num_shards)
        partition = self.shard_cache.partition
        if self.num_shards <= NUM_JOINED_TASKS or not partition.is_small(MAX_JOINED_BYTES):
            return cut_tasks(shards, MAX_TASKS), 0
        tasks = cut_tasks(shards, NUM_JOINED_TASKS)
        is_few = self.num_shards <= MAX_UNJOINED or self.model.local is not None
        if is_few and partition.is_small(self.num_shards * MAX_CACHED_BYTES):
            return tasks, 0
        return tasks, len(tasks[0].shards)


def cut_tasks(shards: Sequence[int], num_tasks: int) -> list[Task]:
    """Return at most `num_tasks` tasks of equally many shards; the last may have fewer."""
    size = -(-len(shards) // num_tasks)
    return [Task(tuple(shards[first : first + size])) for first in range(0, len(shards), size)]


def row_bytes(shard: Shard) -> int:
    """Return the memory of a row."""
    return -(-shard.num_bytes // len(shard.weights))


def piece_tasks(pieces: Iterable[tuple[tuple[int, ...], Piece]]) -> list[Task]:
    """Return the tasks of an evaluation of pieces."""
    return [Task(shards, piece=piece) for shards, piece in pieces]


def _densities(shard_cache: ShardCache, task: Task, num_joined: int) -> Iterable[Subposterior]:
    if task.piece is not None:
        return [shard_cache.piece_density(task.shards, task.piece)]
    if num_joined:
        return [shard_cache.joint_density(task.shards, num_joined)]
    return (shard_cache.density(shard) for shard in task.shards)


def _evaluate(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: Any,
    num_joined: int,
) -> tuple[np.ndarray, np.ndarray]:
    del advance
    points = np.asarray(points)
    return _sum(evaluate(density, points) for density in _densities(shard_cache, task, num_joined))


def _hessian_products(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    point: Any,
    directions: Any,
    num_joined: int,
) -> np.ndarray:
    del advance
    point, directions = np.asarray(point), np.asarray(directions)
    return np.sum(
        [
            hessian_products(density, point, directions)
            for density in _densities(shard_cache, task, num_joined)
        ],
        axis=0,
    )


def _sum(parts: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    log_densities, scores = zip(*parts, strict=True)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite at points far away
        return np.sum(log_densities, axis=0), np.sum(scores, axis=0)


class Minibatch:
    r"""An unbiased estimate of a target, from the rows of a few shards chosen at random.

    A sum over few shards is far off, but by nearly the same amount at all points. So the sum
    estimates only the difference to the linear expansion around an anchor $a$, at which the full
    target is known:

    $$\log p(u) \approx \log p(a) + g^\top (u - a)
      + \frac K m \sum_{k \in m} \bigl[\ell_k(u) - \ell_k(a) - g_k^\top (u - a)\bigr].$$
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
        """Return log densities and scores at a batch of points, with new shards in every call."""
        num_shards = self.target.num_shards
        only = self._generator.choice(num_shards, self.num_shards, replace=False).tolist()
        values, scores = self.target(jnp.concatenate([points, self.anchor[None]]), only)
        correction = self._score - scores[-1]
        log_densities = self._value + values[:-1] - values[-1] + (points - self.anchor) @ correction
        return log_densities, correction + scores[:-1]
