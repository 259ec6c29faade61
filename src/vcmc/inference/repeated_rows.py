"""Find batches of earlier rows that new rows hold, too: e.g. a file of all rows so far.

Rows that are the same in all columns may be different observations. So a batch counts as repeated
only if its rows are nearly all distinct, and every one of them is among the new rows.
"""

from collections.abc import Sequence

import numpy as np

from ..data.row_digest import row_hashes
from .batch_plan import EarlierShard, Rows

MIN_DISTINCT_SHARE = 0.9  # of the rows of a batch: of few distinct rows, all recur by chance
MIN_DISTINCT = 20  # rows of a batch: fewer may recur by chance
NUM_FIRST = 64  # rows of a batch that are looked up before all others


def repeated_batches(
    rows: Rows, earlier: Sequence[EarlierShard], group_column: str | None
) -> dict[int, int]:
    """Return the numbers of the batches that are among new rows, and their numbers of rows."""
    new = np.unique(row_hashes(rows, group_column))
    by_batch: dict[int, list[EarlierShard]] = {}
    for shard in earlier:
        by_batch.setdefault(shard.batch, []).append(shard)
    counts = {batch: sum(s.num_rows for s in shards) for batch, shards in by_batch.items()}
    return {
        batch: counts[batch]
        for batch, shards in by_batch.items()
        if counts[batch] <= len(new) and _is_among(shards, new, group_column)
    }


def _is_among(shards: Sequence[EarlierShard], new: np.ndarray, group_column: str | None) -> bool:
    """Return whether all rows of some shards have their hashes among those of new rows."""
    found = []
    for shard in shards:
        rows = shard.read(group_column)
        first = {name: array[:NUM_FIRST] for name, array in rows.items()}
        for part in (first, rows):
            hashes = row_hashes(part, group_column)
            if not np.isin(hashes, new).all():
                return False
        found.append(hashes)
    total = sum(map(len, found))
    num_distinct = len(np.unique(np.concatenate(found)))
    return num_distinct >= max(MIN_DISTINCT, MIN_DISTINCT_SHARE * total)


def repeated_sentence(batches: dict[int, int], names: dict[int, str]) -> str:
    """Return what to tell about batches that are repeated."""
    parts = []
    for batch, count in batches.items():
        name = f" {names[batch]!r}" if names.get(batch) else ""
        parts.append(f"batch {batch}{name} ({count} rows)")
    return (
        f"the new rows hold all rows of {', '.join(parts)}, which are used already: they count "
        "twice now. Pass only rows that are new."
    )
