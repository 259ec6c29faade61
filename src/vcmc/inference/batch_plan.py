"""Which shards the rows of a new batch form, and with which earlier rows.

A batch is split as all rows would be: into shards of about an eighth of all rows, so many that all
slots are busy. Where it is too small for that, it is merged with the smallest earlier shards, and
sampled with them. So there are never many small shards, however often a posterior is updated, and
an update samples few earlier rows again. In a model with groups, new rows of known groups go to the
shard of their group, which is sampled again, and rows are counted by groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..data.grouped import encode_groups
from ..data.partition import split
from ..data.shard_files import rows_of
from ..data.shard_list import BatchShard
from ..results.states import KnownFacts
from ..samplers.base import Chain
from .shard_count import MAX_UNSPLIT_BYTES, MIN_ROWS_PER_COORDINATE, MIN_SHARDS

MAX_PARTS = 64  # of all rows: a shard below one of these parts is merged with others
REDUCED_GROWTH = 4  # of the least size of a shard, where shards hold too little information

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class EarlierShard:
    """A shard of an earlier batch.

    Attributes:
        rows: its rows.
        size: the number of its rows, or of its groups.
        num_rows: the number of its rows.
        batch: the number of the batch that brought its last rows.
        chains: its draws.
        name: what the history calls it.
        facts: what is known of it from earlier updates.
    """

    rows: BatchShard
    size: int
    num_rows: int
    batch: int
    chains: list[Chain] = field(default_factory=list)
    name: Any = None
    facts: KnownFacts | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of chains and of their draws."""
        return len(self.chains), len(self.chains[0].points)

    def read(self, group_column: str | None = None) -> Rows:
        """Return the rows; the column of groups holds labels."""
        rows = rows_of(self.rows.partition.load(self.rows.number))
        if group_column is not None and self.rows.labels is not None:
            rows[group_column] = self.rows.labels[rows[group_column]]
        return rows


class BatchSettings(NamedTuple):
    """What decides into how many shards a batch is split.

    Attributes:
        dim: coordinates of the model.
        num_slots: slots of the executor.
        num_shards: the number that the user asks for, if any.
        seed: seed of the split.
        group_column: the column of groups, if the model has them.
        least_size: the least size of a shard, where smaller ones held too little information.
        can_merge: whether the rows of earlier shards are known one by one.
    """

    dim: int
    num_slots: int
    num_shards: int | None
    seed: int
    group_column: str | None = None
    least_size: int = 0
    can_merge: bool = True


class BatchPlan(NamedTuple):
    """The new shards, and the earlier ones whose rows they contain.

    Attributes:
        shards: the rows of every new shard; the column of groups holds labels.
        replaced: places of the earlier shards that the new ones replace.
        is_fixed: whether the shards cannot be made fewer.
        least_size: what to ask for as the least size if these shards hold too little information.
        batches: the batch that brought the last rows of each new shard; None if it is this one.
    """

    shards: Sequence[Rows]
    replaced: frozenset[int]
    is_fixed: bool
    least_size: int
    batches: Sequence[int] | None = None


def plan_batch(rows: Rows, earlier: Sequence[EarlierShard], settings: BatchSettings) -> BatchPlan:
    """Return the shards that new rows form, with rows of earlier shards where they are too few."""
    column = settings.group_column
    shards, replaced, rest = _known_groups(rows, earlier, column)
    if rest is None:
        return BatchPlan(shards, frozenset(replaced), True, 0)
    others = [place for place in range(len(earlier)) if place not in replaced]
    total = _size(rest, column) + sum(earlier[place].size for place in others)
    if settings.num_shards is not None:
        parts = _split(rest, settings.num_shards, settings)
        return BatchPlan(shards + parts, frozenset(replaced), True, 0)
    merged, useful = _places_to_merge(_size(rest, column), total, earlier, others, settings)
    pool = _concatenated([rest, *(earlier[place].read(column) for place in merged)])
    size = _size(pool, column)
    number = _number_of_shards(pool, total, useful, bool(merged), settings)
    is_fixed = number == 1 and (len(merged) == len(others) or not settings.can_merge)
    parts = _split(pool, number, settings)
    return BatchPlan(
        shards + parts,
        frozenset(replaced).union(merged),
        is_fixed,
        REDUCED_GROWTH * max(1, size // number),
    )


def merge_small(
    shards: Sequence[Rows],
    earlier: Sequence[EarlierShard],
    replaced: Sequence[int],
    batches: Sequence[int],
    settings: BatchSettings,
) -> BatchPlan:
    """Return shards that have lost rows, those that are too small merged with others.

    Args:
        shards: the rows that are left of them.
        earlier: all shards as they were.
        replaced: the places of all shards that have lost rows.
        batches: the batch of each that has rows left.
        settings: what decides which shards are too small.
    """
    column = settings.group_column
    others = [place for place in range(len(earlier)) if place not in replaced]
    sizes = [_size(rows, column) for rows in shards]
    total = sum(sizes) + sum(earlier[place].size for place in others)
    useful = _useful_size(total, [shard.size for shard in earlier], settings)
    is_small = [size < useful for size in sizes]
    whole = [rows for rows, small in zip(shards, is_small, strict=True) if not small]
    whole_batches = [batch for batch, small in zip(batches, is_small, strict=True) if not small]
    if not any(is_small):
        least_size = REDUCED_GROWTH * min(sizes)
        return BatchPlan(whole, frozenset(replaced), False, least_size, whole_batches)
    pool = _concatenated([rows for rows, small in zip(shards, is_small, strict=True) if small])
    merged, _ = _places_to_merge(_size(pool, column), total, earlier, others, settings)
    pool = _concatenated([pool, *(earlier[place].read(column) for place in merged)])
    size = _size(pool, column)
    is_fixed = len(merged) == len(others) and not whole
    pool_batch = max(
        *(batch for batch, small in zip(batches, is_small, strict=True) if small),
        *(earlier[place].batch for place in merged),
        0,
    )
    return BatchPlan(
        [*whole, pool],
        frozenset(replaced).union(merged),
        is_fixed,
        REDUCED_GROWTH * min([size, *sizes]),
        [*whole_batches, pool_batch],
    )


def count_for_share(share: float, num_slots: int) -> int:
    """Return the number of shards of a batch that has a share of all rows, if it is large.

    >>> [count_for_share(share, num_slots=2) for share in (0.5, 0.1)]
    [4, 2]
    """
    return num_slots * int(np.ceil(MIN_SHARDS * share / num_slots))


def _known_groups(
    rows: Rows, earlier: Sequence[EarlierShard], column: str | None
) -> tuple[list[Rows], list[int], Rows | None]:
    """Return the shards of known groups with their new rows, and the rows of new groups."""
    if column is None:
        return [], [], rows
    labels, shards, replaced = np.asarray(rows[column]), [], []
    is_new = np.ones(len(labels), bool)
    for place, shard in enumerate(earlier):
        known = np.unique(shard.read(column)[column])
        is_here = np.isin(labels, known)
        if is_here.any():
            added = {name: array[is_here] for name, array in rows.items()}
            shards.append(_concatenated([shard.read(column), added]))
            replaced.append(place)
            is_new &= ~is_here
    rest = {name: array[is_new] for name, array in rows.items()} if is_new.any() else None
    return shards, replaced, rest


def _places_to_merge(
    size: int,
    total: int,
    earlier: Sequence[EarlierShard],
    others: Sequence[int],
    settings: BatchSettings,
) -> tuple[list[int], int]:
    """Return the earlier shards to merge a batch with, and the size that shards should have."""
    sizes = [earlier[place].size for place in others]
    least = _least_size(sizes, settings)
    useful = _useful_size(total, sizes, settings)
    merged: list[int] = []
    for place in sorted(others, key=lambda place: earlier[place].size):
        is_small = earlier[place].size < useful
        if size >= useful or (size >= least and not is_small) or not settings.can_merge:
            break
        merged.append(place)
        size += earlier[place].size
    return merged, useful


def _least_size(sizes: Sequence[int], settings: BatchSettings) -> int:
    """Return the size below which a shard is merged with any other."""
    least = MIN_ROWS_PER_COORDINATE * settings.dim
    if sizes:  # shards as small as the user's are as the user wants them
        least = min(least, int(np.median(sizes)))
    return max(least, settings.least_size)


def _useful_size(total: int, sizes: Sequence[int], settings: BatchSettings) -> int:
    """Return the size below which a shard is merged with other small ones."""
    return max(_least_size(sizes, settings), total // MAX_PARTS)


def _number_of_shards(
    pool: Rows, total: int, useful: int, is_merged: bool, settings: BatchSettings
) -> int:
    """Return the number of shards for new rows, and those that they are merged with."""
    size = _size(pool, settings.group_column)
    number = count_for_share(size / total, settings.num_slots)
    if is_merged:  # perhaps with a large shard: the next small batch is to find a smaller one
        number = 2
    elif sum(array.nbytes for array in pool.values()) <= MAX_UNSPLIT_BYTES:
        number = 1
    return max(1, min(number, size // useful))


def _size(rows: Rows, column: str | None) -> int:
    """Return the number of rows, or of groups."""
    if column is not None:
        return len(np.unique(rows[column]))
    return len(next(iter(rows.values())))


def _concatenated(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _split(rows: Rows, number: int, settings: BatchSettings) -> list[Rows]:
    """Return the rows of so many shards, with whole groups."""
    column = settings.group_column
    encoded: Any = rows if column is None else encode_groups(rows, column)[0]
    partition: Any = split(encoded, number, seed=settings.seed, groups=column)
    return [{name: array[members] for name, array in rows.items()} for members in partition.members]
