r"""Pair the shards' draws at random: few draws of each shard make many combined draws.

Shards are independent, so any tuple of one draw per shard is a valid input of an aggregator, not
only the first draws of all shards, the second draws, and so on. There are $n^K$ tuples of $n$ draws
from each of $K$ shards. Each shard's draws are used equally often, in an order of its own, so that
the mean of averages over all tuples is the average of the shards' means.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int


def random_pairing(
    num_shard_draws: int, num_draws: int, seed: int | Sequence[int]
) -> Int[np.ndarray, " draw"]:
    """Return which draw of a shard goes into each of `num_draws` combined draws.

    One random order of the shard's draws follows another; the last may be cut short.

    >>> sorted(random_pairing(3, 6, seed=0).tolist())
    [0, 0, 1, 1, 2, 2]
    """
    generator = np.random.default_rng(seed)
    num_orders = -(-num_draws // num_shard_draws)
    orders = [generator.permutation(num_shard_draws) for _ in range(num_orders)]
    return np.concatenate(orders)[:num_draws]


def sum_pairs(
    parts: Iterable[Float[np.ndarray, "shard_draw dim"]], pairs: Int[np.ndarray, "shard draw"]
) -> Float[np.ndarray, "draw dim"]:
    """Add up one draw of each shard for every combined draw, shard by shard."""
    total: np.ndarray | None = None
    for draws, indices in zip(parts, pairs, strict=True):
        selected = np.take(np.asarray(draws), indices, axis=0)
        total = selected if total is None else np.add(total, selected, out=total)
    if total is None:
        raise ValueError("there are no shards")
    return total
