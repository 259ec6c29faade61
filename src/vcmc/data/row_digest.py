"""A digest of rows that does not depend on their order, so that rows that were seen are recognised.

Every row has a 64-bit hash of its values; the digest is their number and their sum. So the digest
of rows is the sum of those of the shards that they were split into.

>>> row_digest({"y": np.array([1, 2])}) == row_digest({"y": np.array([2, 1])})
True
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .rows import native

MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # of SplitMix64
BLOCK_ROWS = 2**16  # that are hashed at once
MASK = 2**64 - 1


class RowDigest(NamedTuple):
    """The number of some rows, and the sum of their hashes."""

    num_rows: int = 0
    total: int = 0

    def plus(self, other: "RowDigest") -> "RowDigest":
        """Return the digest of these rows and others."""
        return RowDigest(self.num_rows + other.num_rows, (self.total + other.total) & MASK)


def row_digest(rows: Mapping[str, np.ndarray], group_column: str | None = None) -> RowDigest:
    """Return the digest of rows; labels of groups may be of any kind.

    Args:
        rows: arrays with one leading axis.
        group_column: the column of labels of groups.
    """
    hashes = row_hashes(rows, group_column)
    return RowDigest(len(hashes), int(np.sum(hashes, dtype=np.uint64)))


def row_hashes(rows: Mapping[str, np.ndarray], group_column: str | None = None) -> np.ndarray:
    """Return the hash of every row: equal for rows with equal values.

    Args:
        rows: arrays with one leading axis.
        group_column: the column of labels of groups.
    """
    count = len(next(iter(rows.values())))
    hashes = np.zeros(count, np.uint64)
    for first in range(0, count, BLOCK_ROWS):
        part = hashes[first : first + BLOCK_ROWS]
        for name, array in sorted(rows.items()):
            block = np.asarray(array[first : first + BLOCK_ROWS])
            values = _label_hashes(block) if name == group_column else _numbers(block)
            salt = _text_hash(name)
            for column in values.T:
                part[:] = _mixed(part ^ _mixed(column + salt))
    return hashes


def _numbers(block: np.ndarray) -> np.ndarray:
    """Return the bits of numbers, one column per entry of a row."""
    values = native(block).reshape(len(block), -1).astype(float) + 0.0  # −0 is 0, 1 is 1.0
    return values.view(np.uint64)


def _label_hashes(labels: np.ndarray) -> np.ndarray:
    unique, codes = np.unique(labels, return_inverse=True)
    hashes = np.array([_text_hash(str(label)) for label in unique], np.uint64)
    return hashes[codes][:, None]


def _text_hash(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return the finalizer of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * MULTIPLIERS[0]
    values = (values ^ (values >> np.uint64(27))) * MULTIPLIERS[1]
    return values ^ (values >> np.uint64(31))
