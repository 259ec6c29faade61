"""Pieces of equally many rows, into which the rows of uneven shards are cut for evaluation.

Shards of different lengths need a program each. Pieces have one length, which changes only where
the number of rows doubles, and not at all above a limit: so one program evaluates all rows of a
posterior, and the next update finds it in the cache of compiled programs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from .shard import Shard

MAX_PIECE_BYTES = 2**23  # 60,000 rows of 15 covariates: calling takes little, cores are busy
MIN_PIECES = 2  # one per core of a small machine


class Piece(NamedTuple):
    """The rows of a piece, in the shards that hold them.

    Attributes:
        ranges: the first row of every shard, and the one after the last.
        length: the number of rows with padding.
        prior_power: the power of the prior; those of all pieces add up to one.
    """

    ranges: tuple[tuple[int, int], ...]
    length: int
    prior_power: float


def cut_pieces(counts: Sequence[int], row_bytes: int) -> list[tuple[tuple[int, ...], Piece]]:
    """Return the shards of every piece, and the piece.

    >>> [shards for shards, _ in cut_pieces([3, 2, 3], row_bytes=8)]
    [(0, 1), (1, 2)]

    Args:
        counts: the number of rows of every shard.
        row_bytes: the memory of a row.
    """
    total = sum(counts)
    largest = max(1, MAX_PIECE_BYTES // row_bytes).bit_length() - 1
    length = 2 ** min(largest, max(0, -(-total // MIN_PIECES) - 1).bit_length())
    ends = np.cumsum(counts)
    number = -(-total // length)
    pieces = []
    for first in range(0, total, length):
        last = min(first + length, total)
        shards = np.flatnonzero((ends > first) & (ends - counts < last))
        ranges = tuple(
            (int(max(first - begin, 0)), int(min(last, end) - begin))
            for begin, end in zip((ends - counts)[shards], ends[shards], strict=True)
        )
        pieces.append((tuple(shards.tolist()), Piece(ranges, length, 1 / number)))
    return pieces


def joined_piece(shards: Sequence[Shard], piece: Piece) -> Shard:
    """Return the rows of a piece as a shard, padded with copies of its first row."""

    def join(*arrays: np.ndarray) -> np.ndarray:
        pairs = zip(arrays, piece.ranges, strict=True)
        rows = np.concatenate([np.asarray(array)[first:last] for array, (first, last) in pairs])
        return np.concatenate([rows, np.repeat(rows[:1], piece.length - len(rows), axis=0)])

    rows = jax.tree.map(join, *(shard.rows for shard in shards))
    weights = join(*(np.asarray(shard.weights) for shard in shards))
    weights[sum(last - first for first, last in piece.ranges) :] = 0.0
    return Shard(jax.device_put(rows), jax.device_put(weights))
