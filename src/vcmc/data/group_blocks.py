"""Blocks of a shard's groups, for work whose results for all groups would not fit into memory."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from .shard import Shard
from .tiles import Groups


def num_blocks(num_groups: int, max_groups: int) -> int:
    """Return the number of blocks of at most `max_groups` groups."""
    return -(-num_groups // max_groups)


def group_blocks(shard: Shard, max_groups: int) -> Iterator[Shard]:
    """Yield shards of at most `max_groups` groups each, which share a shape, in order."""
    assert shard.groups is not None
    count = shard.groups.num_groups
    if count <= max_groups:
        yield shard
        return
    of_tile = np.asarray(shard.groups.of_tile)
    firsts = range(0, count, max_groups)
    begins = np.searchsorted(of_tile, list(firsts))
    ends = np.searchsorted(of_tile, [min(first + max_groups, count) for first in firsts])
    most = int(np.max(ends - begins))
    # blocks of other shards have similar numbers of tiles, and are to have the same shape
    step = 1 << max(0, most.bit_length() - 4)
    num_tiles = max_groups if shard.groups.are_tiles else step * (most // step + 1)
    for first, begin, end in zip(firsts, begins.tolist(), ends.tolist(), strict=True):
        yield _block(
            shard, slice(first, min(first + max_groups, count)), begin, end, max_groups, num_tiles
        )


def _block(
    shard: Shard, chosen: slice, begin: int, end: int, max_groups: int, num_tiles: int
) -> Shard:
    """Return the tiles from `begin` to `end`, which are those of the chosen groups, padded."""
    groups = shard.groups
    assert groups is not None
    of_tile = np.asarray(groups.of_tile)
    tile_rows = len(shard.weights) // len(of_tile)
    padding = num_tiles - (end - begin)
    tiles = np.append(np.arange(begin, end), np.full(padding, end - 1))
    order = (tile_rows * tiles[:, None] + np.arange(tile_rows)).ravel()
    weights = np.asarray(shard.weights)[order]
    weights[tile_rows * (end - begin) :] = 0.0
    num_absent = max_groups - (chosen.stop - chosen.start)
    new_of_tile = np.append(of_tile[begin:end] - chosen.start, np.full(padding, max_groups - 1))
    first_tile = np.asarray(groups.first_tile)[chosen] - begin
    block = Groups(
        jnp.asarray(np.arange(max_groups) if groups.are_tiles else new_of_tile),
        jnp.asarray(
            np.arange(max_groups)
            if groups.are_tiles
            else np.append(first_tile, np.full(num_absent, num_tiles - 1))
        ),
        jnp.asarray(np.append(np.asarray(groups.weights)[chosen], np.zeros(num_absent))),
        groups.are_tiles,
    )
    rows = {name: jnp.asarray(np.asarray(array)[order]) for name, array in shard.rows.items()}
    return Shard(rows, jnp.asarray(weights), block)
