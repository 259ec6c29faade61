"""The groups of a shard's rows, laid out so that sums over groups are fast.

The rows of a group follow each other in tiles of equally many rows; the last tile of a group is
padded with rows of weight zero. A sum over the rows of each tile is a sum along an axis, and only
sums of tiles are scattered to their groups. Groups may have any sizes: the number of rows in a tile
is chosen so that padding and scattering together cost least.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

TILE_COST = 3.0  # of scattering the sum of a tile, in rows
MAX_TILE_ROWS = 256


class Groups(eqx.Module):
    """The groups of a shard's rows; groups of weight zero are padding.

    Attributes:
        of_tile: the group of each tile, in increasing order.
        first_tile: the first tile of each group.
        weights: the power to which each group's marginal likelihood is raised.
        are_tiles: whether every group is one tile.
        is_full: whether all rows are known to have weight one, so that nothing need be multiplied.
    """

    of_tile: Int[Array, " tile"]
    first_tile: Int[Array, " group"]
    weights: Float[Array, " group"]
    are_tiles: bool = eqx.field(static=True)
    is_full: bool = eqx.field(static=True, default=False)

    @property
    def num_groups(self) -> int:
        """Number of groups without padding."""
        return int(np.count_nonzero(np.asarray(self.weights) > 0))

    def powered(self, power: float) -> "Groups":
        """Return the groups with their marginal likelihoods raised to a power."""
        return dataclasses.replace(self, weights=power * self.weights)

    def spread(self, values: Float[Array, "group *axes"], num_rows: int) -> Array:
        """Return for every row the value of its group."""
        by_tile = values if self.are_tiles else values[self.of_tile]
        shape = (len(self.of_tile), num_rows // len(self.of_tile))

        def spread_one(column: Array) -> Array:
            return jnp.broadcast_to(column[:, None], shape).reshape(num_rows)

        if values.ndim == 1:
            return spread_one(by_tile)
        # one by one: models take entries apart again, and XLA then vectorizes over rows
        entries = by_tile.reshape(len(by_tile), -1).T
        return jnp.stack([spread_one(entry) for entry in entries], axis=-1).reshape(
            num_rows, *values.shape[1:]
        )

    def sum(
        self, values: Float[Array, " row"], weights: Float[Array, " row"]
    ) -> Float[Array, " group"]:
        """Return the weighted sum over the rows of every group."""
        if not self.is_full:  # XLA sums values alone in two thirds of the time
            values = weights * values
        by_tile = values.reshape(len(self.of_tile), -1).sum(axis=1)
        if self.are_tiles:
            return by_tile
        return jax.ops.segment_sum(
            by_tile, self.of_tile, len(self.weights), indices_are_sorted=True
        )

    def first_rows(self, rows: dict[str, Array]) -> dict[str, Array]:
        """Return the first row of every group."""

        def first(array: Array) -> Array:
            tiles = array.reshape(len(self.of_tile), -1, *array.shape[1:])[:, 0]
            return tiles if self.are_tiles else tiles[self.first_tile]

        return {name: first(array) for name, array in rows.items()}


class TileLayout(NamedTuple):
    """A layout that shards share.

    Attributes:
        tile_rows: rows of a tile.
        num_tiles: tiles of a shard.
        num_groups: groups of a shard.
        is_full: whether no shard has padding.
    """

    tile_rows: int
    num_tiles: int
    num_groups: int
    is_full: bool = False

    @classmethod
    def for_sizes(cls, sizes: Sequence[Int[np.ndarray, " group"]]) -> "TileLayout":
        """Return the cheapest layout for the sizes of each shard's groups.

        >>> TileLayout.for_sizes([np.array([20, 20]), np.array([20])])
        TileLayout(tile_rows=20, num_tiles=2, num_groups=2, is_full=False)
        >>> TileLayout.for_sizes([np.array([1, 1, 1000])]).tile_rows
        32
        """
        largest = max(int(shard.max()) for shard in sizes)
        num_groups = max(len(shard) for shard in sizes)
        candidates = {min(largest, MAX_TILE_ROWS), *(2**power for power in range(9))}

        def num_tiles(tile_rows: int) -> int:
            return max(int(np.sum(-(-shard // tile_rows))) for shard in sizes)

        def cost(tile_rows: int) -> float:
            scattering = 0.0 if tile_rows >= largest else TILE_COST
            return num_tiles(tile_rows) * (tile_rows + scattering)

        tile_rows = min(sorted(c for c in candidates if c <= largest), key=cost)
        are_tiles = tile_rows >= largest
        is_full = are_tiles and all(
            len(shard) == num_groups and shard.min() == tile_rows for shard in sizes
        )
        num_shard_tiles = num_groups if are_tiles else num_tiles(tile_rows) + 1
        return cls(tile_rows, num_shard_tiles, num_groups, is_full)


def tiled(
    labels: Int[np.ndarray, " row"], layout: TileLayout
) -> tuple[Groups, Int[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Lay out rows by their labels.

    Return the groups in the order of their labels, for every row of the layout the number of the
    row that goes there, and its weight, zero for padding.
    """
    order = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)
    tile_rows, num_tiles, num_groups, is_full = layout
    tiles_of_group = -(-sizes // tile_rows)
    of_tile = np.repeat(np.arange(len(sizes)), tiles_of_group)
    first_tile = np.cumsum(tiles_of_group) - tiles_of_group
    are_tiles = num_tiles == num_groups
    # padding: groups without rows, whose tiles are the last ones
    of_tile = (
        np.arange(num_groups)
        if are_tiles
        else np.append(of_tile, np.full(num_tiles - len(of_tile), num_groups - 1))
    )
    first_tile = np.append(first_tile, np.full(num_groups - len(sizes), num_tiles - 1))
    if are_tiles:
        first_tile = np.arange(num_groups)
    # the place of the row with number i in the order: the first place of its group, and so on
    group_of_row = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = first_tile[group_of_row] * tile_rows + rank
    # padding repeats the first row of the group, so that columns stay constant within groups
    length = num_tiles * tile_rows
    first_of_group = order[np.cumsum(sizes) - sizes]
    last = first_of_group[-1]
    filling = np.append(first_of_group, np.full(num_groups - len(sizes), last))
    numbers = np.repeat(filling[of_tile], tile_rows)
    numbers[places] = order
    weights = np.zeros(length)
    weights[places] = 1.0
    group_weights = (np.arange(num_groups) < len(sizes)).astype(float)
    groups = Groups(
        jnp.asarray(of_tile),
        jnp.asarray(first_tile),
        jnp.asarray(group_weights),
        are_tiles,
        is_full,
    )
    return groups, numbers, weights


def row_weights(
    column: str, values: np.ndarray, shard: int | None = None
) -> Float[np.ndarray, " row"]:
    """Return a column of weights by row as floats; refuse values that are no weights.

    Args:
        column: its name.
        values: the weights of all rows, or of the rows of a shard.
        shard: the number of the shard, of which one weight at least must be positive.
    """
    if values.ndim != 1:
        raise ValueError(
            f"the weights rows[{column!r}] must be one number per row; got {values.shape[1:]} "
            "numbers per row."
        )
    weights = np.asarray(values, float)
    is_bad = ~(np.isfinite(weights) & (weights >= 0))
    if is_bad.any():
        first = int(np.argmax(is_bad))
        raise ValueError(
            f"the weights rows[{column!r}] must be finite and not negative; got {weights[first]} "
            f"and {is_bad.sum() - 1} more in {len(weights)} rows. Drop these rows, or give them "
            "weight zero."
        )
    if shard is not None and not weights.any():
        raise ValueError(
            f"the weights rows[{column!r}] of shard {shard} are all zero: it has no information. "
            "Drop rows of weight zero, or use fewer shards."
        )
    return weights


def joined_groups(parts: Sequence[Groups]) -> Groups:
    """Return the groups of several shards' rows, one after the other."""
    tiles = np.cumsum([0, *(len(part.of_tile) for part in parts[:-1])])
    counts = np.cumsum([0, *(len(part.weights) for part in parts[:-1])])
    return Groups(
        jnp.asarray(
            np.concatenate(
                [np.asarray(part.of_tile) + n for part, n in zip(parts, counts, strict=True)]
            )
        ),
        jnp.asarray(
            np.concatenate(
                [np.asarray(part.first_tile) + n for part, n in zip(parts, tiles, strict=True)]
            )
        ),
        jnp.asarray(np.concatenate([np.asarray(part.weights) for part in parts])),
        parts[0].are_tiles,
        all(part.is_full for part in parts),
    )
