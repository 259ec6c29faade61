r"""Choose the number of shards where it is left out.

Sampling a shard takes a short warm-up and about $5000/K^2$ draws, at least 100, because draws of
different shards are paired at random. So the gradients of all shards together fall with $K$ up to
about eight and stay the same above it, while each shard has fixed costs and less information.
Hence the least multiple of the executor's slots that is at least eight: all slots are busy to the
end. Fewer shards if they would have too few rows for the number of coordinates, or too few groups
to tell the spread of local parameters; more if rows are read from files, and shards would not fit
into memory.

When the mode is known, shards that hold too little information are replaced by fewer: if some do
not depend on a coordinate, or if the first is far from normal. The non-normality of a shard falls
as one over its rows.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from ..data.shard import AbstractPartition
from ..data.size import RowsSize
from ..errors import SlotLost
from ..executors import AbstractExecutor

# Rows of which a single chain makes 5000 draws in seconds, even by NUTS: 65 000 gradients of 60 µs.
MAX_UNSPLIT_BYTES = 2**16
MIN_SHARDS = 8  # fewer need more draws each; on 200 000 x 20, K = 8 took the least CPU time
# of a shard; with 20, regressions with Student's t noise are sampled well
MIN_ROWS_PER_COORDINATE = 20
# of a shard, for each local coordinate of a group: 40 of an item-response model tell the spread
MIN_GROUPS_PER_COORDINATE = 40
MIN_INFORMATIVE_ROWS = 5  # of a shard, on average, so that fewer than 1 % of the shards have none
# Of the first shard (`samplers/whitening.py`). A mixture with 2000 rows a shard (7) is hard, but 96
# draws of NUTS had sds within a third; with 500 rows (47) they were useless. Log rates of 1 event
# have 1, of less than half an event 9.
MAX_SHARD_NON_NORMALITY = 10.0
MAX_SHARD_BYTES = 2**28  # of rows that are read from files
MEMORY_PARTS = 8  # of a machine's memory, divided by its slots, of which a shard may take one


class ShardCount(NamedTuple):
    """A number of shards, and the reason for it in one sentence."""

    number: int
    reason: str


class Groups(NamedTuple):
    """The number of groups, and that of local coordinates of each."""

    num_groups: int
    dim: int


class TooManyShards(Exception):
    """The shards hold too little information; `fewer` is the number to try instead."""

    def __init__(self, fewer: ShardCount):
        super().__init__(fewer.reason)
        self.fewer = fewer


def count_by_size(
    size: RowsSize,
    dim: int,
    num_slots: int,
    max_shard_bytes: int | None = None,
    groups: Groups | None = None,
) -> ShardCount:
    """Return the number of shards for rows of a size and a model of `dim` coordinates.

    >>> count_by_size(RowsSize(200_000, 168), dim=20, num_slots=2).number
    8
    """
    if size.num_bytes <= MAX_UNSPLIT_BYTES:
        return ShardCount(1, f"{size.num_rows} rows are few enough for chains on all of them.")
    number = num_slots * -(-MIN_SHARDS // num_slots)
    slots = "one slot" if num_slots == 1 else f"{num_slots} slots"
    reason = f"{number} shards keep {slots} busy, and each needs few draws."
    limits = [
        (
            size.num_rows // (MIN_ROWS_PER_COORDINATE * dim),
            f"{MIN_ROWS_PER_COORDINATE} rows each for every one of {dim} coordinates",
        )
    ]
    if groups:
        least = MIN_GROUPS_PER_COORDINATE * groups.dim
        limits.append((groups.num_groups // least, f"{least} groups each"))
    most, needed = min(limits)
    if max(1, most) < number:
        number = _whole_rounds(max(1, most), num_slots)
        reason = f"more than {number} would have fewer than {needed}."
    if max_shard_bytes is not None and size.num_bytes > number * max_shard_bytes:
        number = num_slots * -(-size.num_bytes // (num_slots * max_shard_bytes))
        reason = f"each shard has at most {max_shard_bytes / 2**20:.0f} MB of rows."
    return ShardCount(number, reason)


def choose_partition(
    dim: int,
    size: RowsSize,
    executor: AbstractExecutor,
    split: Callable[[int], AbstractPartition],
    is_on_disk: bool,
    groups: Groups | None = None,
) -> tuple[AbstractPartition, str]:
    """Split rows into a number of shards that suits their size; return the reason for it, too."""
    num_slots = slots_of(executor)
    limit = _max_shard_bytes(num_slots) if is_on_disk else None
    chosen = count_by_size(size, dim, num_slots, limit, groups)
    return split(chosen.number), chosen.reason


def slots_of(executor: AbstractExecutor) -> int:
    """Return the number of an executor's slots; one if it is lost, as the next stage will say."""
    try:
        return executor.count_slots()
    except SlotLost:
        return 1


def check_silent(
    silent: Bool[np.ndarray, "shard dim"], coordinates: Sequence[str], executor: AbstractExecutor
) -> None:
    """Raise `TooManyShards` if some shards, but not all, are silent about a coordinate.

    If a share f of them is, a shard has −log f informative rows on average (Poisson).
    """
    num_silent = np.where(silent.all(axis=0), 0, silent.sum(axis=0))
    if not num_silent.any():
        return
    worst, num_shards = int(np.argmax(num_silent)), len(silent)
    informative = -np.log((num_silent[worst] + 0.5) / (num_shards + 1))
    most = max(1, int(num_shards * informative / MIN_INFORMATIVE_ROWS))
    number = _whole_rounds(min(most, num_shards - 1), slots_of(executor))
    raise TooManyShards(
        ShardCount(
            number,
            f"of {num_shards} shards {num_silent[worst]} would hold no information on "
            f"{coordinates[worst]}.",
        )
    )


def check_normality(non_normality: float, num_shards: int, executor: AbstractExecutor) -> None:
    """Raise `TooManyShards` if the first shard is so far from normal that it is hard to sample."""
    if num_shards == 1 or non_normality <= MAX_SHARD_NON_NORMALITY:
        return
    most = max(1, int(num_shards * MAX_SHARD_NON_NORMALITY / non_normality))
    number = _whole_rounds(most, slots_of(executor))
    raise TooManyShards(
        ShardCount(
            number,
            f"{num_shards} shards would have too few rows: their posteriors are far from normal.",
        )
    )


def _whole_rounds(most: int, num_slots: int) -> int:
    """Return the largest number up to `most` that keeps all slots busy to the end."""
    return most if most < num_slots else num_slots * (most // num_slots)


def _max_shard_bytes(num_slots: int) -> int:
    """Return the most bytes of a shard that is loaded from a file, a power of two."""
    if not hasattr(os, "sysconf"):
        return MAX_SHARD_BYTES
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(MAX_SHARD_BYTES, 2 ** int(np.log2(memory / (MEMORY_PARTS * num_slots))))
