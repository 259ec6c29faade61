r"""A part of the rows, which stands for all, for searches on large data.

The sum over the part $S$, of $m$ out of $K$ shards or of so many rows of uneven ones, is scaled up
to all, and made exact to first order at an anchor $a$:

$$\log p(u) \approx \frac K m \ell_S(u) + c^\top (u - a), \qquad
  c = \nabla \log p(a) - \frac K m \nabla \ell_S(a).$$

So a mode of the posterior at the anchor is one of the sample.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Array, Float

from ..data.cache import Task
from ..data.pieces import MAX_PIECE_BYTES, Piece, sample_pieces, share_pieces
from ..density import Directions, Points, Vector
from ..target import MAX_TASKS, NUM_JOINED_TASKS, Target, cut_tasks, piece_tasks, row_bytes

MIN_SAMPLE_BYTES = 2**20  # of the rows that stand for all
MIN_SHARE = 1 / 16  # of the rows of every shard, if shards are uneven and not cut into pieces
MAX_SIZE_RATIO = 1.25  # of shards that are not cut into pieces and yet stand for each other


class RowSample(Target):
    """The log density of all rows, estimated from a part of them.

    Args:
        target: the target of all rows.
        tasks: the shards, or pieces of them, that are evaluated.
        scale: all rows per row of these.
        anchor: the point $a$.
    """

    def __init__(
        self,
        target: Target,
        tasks: Sequence[Task],
        scale: float,
        anchor: Float[np.ndarray, " dim"],
    ):
        self.shard_cache = target.shard_cache
        self.executor = target.executor
        self.pilot_shard = target.pilot_shard
        self.scale = scale
        self.anchor = np.asarray(anchor)
        self.tasks = list(tasks)
        self._frame = None
        self._target = target

    @classmethod
    def of(cls, target: Target, anchor: Float[np.ndarray, " dim"]) -> "RowSample | None":
        """Return a sample of at most half of the rows, None if they are few."""
        if counts := target.piece_counts:
            length = target.length_of_pieces(counts)
            num_pieces = _num_sampled(length * row_bytes(target.pilot.shard))
            if 2 * num_pieces * length > sum(counts):
                return None
            return cls._of_pieces(target, sample_pieces(counts, length, num_pieces), anchor)
        counts = target.shard_cache.partition.uneven_counts or [1]
        if max(counts) > MAX_SIZE_RATIO * min(counts):
            return cls._of_shares(target, counts, anchor)
        num_shards = _num_sampled(target.shard_cache.shards[0].num_bytes)
        if 2 * num_shards > target.num_shards:
            return None
        return cls.of_shards(
            target, np.arange(num_shards) * target.num_shards // num_shards, anchor
        )

    @classmethod
    def _of_shares(
        cls, target: Target, counts: Sequence[int], anchor: Float[np.ndarray, " dim"]
    ) -> "RowSample | None":
        """Return an equal share of the rows of every shard, where shards are uneven and large."""
        num_bytes = sum(counts) * row_bytes(target.pilot.shard)
        share = max(MIN_SHARE, NUM_JOINED_TASKS * MAX_PIECE_BYTES / num_bytes)
        if share > 0.5 or target.model.local is not None:  # whose rows are laid out by groups
            return None
        groups = [task.shards for task in cut_tasks(range(target.num_shards), MAX_TASKS)]
        return cls._of_pieces(target, share_pieces(counts, share, groups), anchor)

    @classmethod
    def _of_pieces(
        cls,
        target: Target,
        pieces: Sequence[tuple[tuple[int, ...], Piece]],
        anchor: Float[np.ndarray, " dim"],
    ) -> "RowSample":
        """Return a sample of pieces; their powers of the prior add up to the share of the rows."""
        scale = 1 / sum(piece.prior_power for _, piece in pieces)
        return cls(target, piece_tasks(pieces), scale, anchor)

    @classmethod
    def of_shards(
        cls, target: Target, shards: Iterable[int], anchor: Float[np.ndarray, " dim"]
    ) -> "RowSample":
        """Return a sample of some shards."""
        chosen = [int(shard) for shard in shards]
        return cls(target, cut_tasks(chosen, MAX_TASKS), target.num_shards / len(chosen), anchor)

    def __call__(
        self, points: Points, only: Sequence[int] | None = None
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        log_densities, scores = (
            self._sum(points) if only is None else super().__call__(points, only)
        )
        # in NumPy: JAX would compile programs for every number of points
        steps = np.asarray(points) - self.anchor
        with np.errstate(over="ignore", invalid="ignore"):  # infinite at points far away
            values = np.asarray(log_densities) + steps @ self._correction
        return jax.device_put(values), jax.device_put(np.asarray(scores) + self._correction)

    def rows_alone(self, points: Points) -> Float[np.ndarray, " point"]:
        """Return the log densities of the sampled rows, with their share of the prior."""
        return np.asarray(super().__call__(points)[0])

    def hessian_products(
        self, point: Vector, directions: Directions
    ) -> Float[Array, "direction dim"]:
        return self.scale * super().hessian_products(point, directions)

    @cached_property
    def _correction(self) -> Float[np.ndarray, " dim"]:
        score = np.asarray(self._target(self.anchor[None])[1][0])
        return score - self._sum(self.anchor[None])[1][0]

    @cached_property
    def _tasks(self) -> tuple[list[Task], int]:
        return self.tasks, 0

    def _sum(
        self, points: Points
    ) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
        log_densities, scores = super().__call__(points)
        return self.scale * np.asarray(log_densities), self.scale * np.asarray(scores)


def _num_sampled(num_bytes: int) -> int:
    """Return the number of shards, or pieces, of a sample."""
    return max(NUM_JOINED_TASKS, -(-MIN_SAMPLE_BYTES // max(1, num_bytes)))
