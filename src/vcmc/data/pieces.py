"""Pieces of equally many rows, into which the rows of uneven shards are cut for evaluation.

Shards of different lengths need a program each. Pieces have one length: that of the shard whose
programs are needed anyway, unless it is too long or too short. Else it changes only where the
number of rows doubles, and not at all above a limit. So one program evaluates all rows of a
posterior, and the next update finds it in the cache of compiled programs.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from .shard import Shard

MAX_PIECE_BYTES = 2**23  # 60,000 rows of 15 covariates: calling takes little, cores are busy
MIN_PIECES = 2  # one per core of a small machine
MAX_PIECES = 128  # of the length of a shard: calling takes as long as some hundred rows


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


def piece_length(total: int, row_bytes: int, shard_length: int = 0) -> int:
    """Return the number of rows of a piece, with padding.

    Args:
        total: the number of all rows.
        row_bytes: the memory of a row.
        shard_length: the length of a shard whose programs are needed; zero if there is none.
    """
    fits = 0 < shard_length * row_bytes <= MAX_PIECE_BYTES
    if fits and MIN_PIECES * shard_length <= total + shard_length <= MAX_PIECES * shard_length:
        return shard_length
    largest = max(1, MAX_PIECE_BYTES // row_bytes).bit_length() - 1
    return 2 ** min(largest, max(0, -(-total // MIN_PIECES) - 1).bit_length())


def cut_pieces(counts: Sequence[int], length: int) -> list[tuple[tuple[int, ...], Piece]]:
    """Return the shards of every piece, and the piece.

    >>> [shards for shards, _ in cut_pieces([3, 2, 3], length=4)]
    [(0, 1), (1, 2)]

    Args:
        counts: the number of rows of every shard.
        length: the number of rows of a piece.
    """
    total, sizes = sum(counts), np.asarray(counts)
    ends = np.cumsum(sizes)
    number = -(-total // length)
    pieces = []
    for first in range(0, total, length):
        last = min(first + length, total)
        shards = np.flatnonzero((ends > first) & (ends - sizes < last) & (sizes > 0))
        ranges = tuple(
            (int(max(first - begin, 0)), int(min(last, end) - begin))
            for begin, end in zip((ends - sizes)[shards], ends[shards], strict=True)
        )
        pieces.append((tuple(shards.tolist()), Piece(ranges, length, 1 / number)))
    return pieces


def sample_pieces(
    counts: Sequence[int], length: int, num_pieces: int
) -> list[tuple[tuple[int, ...], Piece]]:
    """Return pieces with an equal share of the rows of every shard: a part of all rows.

    The powers of the prior add up to the share of the rows.

    >>> sample_pieces([40, 80], length=15, num_pieces=2)[0]
    ((0, 1), Piece(ranges=((0, 10), (0, 5)), length=15, prior_power=0.125))

    Args:
        counts: the number of rows of every shard.
        length: the number of rows of a piece.
        num_pieces: the number of pieces; as many have at most all rows.
    """
    sizes = [count * num_pieces * length // sum(counts) for count in counts]
    share = sum(sizes) / sum(counts)
    return [
        (shards, piece._replace(prior_power=share * piece.prior_power))
        for shards, piece in cut_pieces(sizes, length)
    ]


def share_pieces(
    counts: Sequence[int], share: float, groups: Sequence[tuple[int, ...]]
) -> list[tuple[tuple[int, ...], Piece]]:
    """Return one piece for every group of shards, with a share of the rows of each of them.

    >>> share_pieces([40, 80], 0.25, groups=[(0,), (1,)])[0]
    ((0,), Piece(ranges=((0, 10),), length=20, prior_power=0.125))

    Args:
        counts: the number of rows of every shard.
        share: the share.
        groups: the shards of every piece.
    """
    sizes = [int(np.ceil(share * count)) for count in counts]
    numbers = [sum(sizes[shard] for shard in group) for group in groups]
    power = sum(numbers) / sum(counts) / len(groups)
    return [
        (group, Piece(tuple((0, sizes[shard]) for shard in group), max(numbers), power))
        for group, number in zip(groups, numbers, strict=True)
        if number
    ]


def joined_piece(shards: Iterable[Shard], piece: Piece) -> Shard:
    """Return the rows of a piece as a shard, padded with copies of its first row.

    Shards may be loaded one by one: no more is kept of them than their part.
    """

    def cut(array: np.ndarray, first: int, last: int) -> np.ndarray:
        return np.array(np.asarray(array)[first:last])

    def join(*arrays: np.ndarray) -> np.ndarray:
        rows = np.concatenate(arrays)
        return np.concatenate([rows, np.repeat(rows[:1], piece.length - len(rows), axis=0)])

    parts = [
        jax.tree.map(partial(cut, first=first, last=last), (shard.rows, shard.weights))
        for shard, (first, last) in zip(shards, piece.ranges, strict=True)
    ]
    rows, weights = jax.tree.map(join, *parts)
    weights[sum(last - first for first, last in piece.ranges) :] = 0.0
    return Shard(jax.device_put(rows), jax.device_put(weights))
