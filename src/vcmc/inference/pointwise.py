"""Pointwise values: some numbers for every row, or group, from its log likelihoods at all draws.

A matrix of draws × rows does not fit into memory where rows are many. So the process that holds
the rows of a shard evaluates a block of them at all draws, reduces the block to some numbers per
row, and goes on to the next. Only these numbers are returned.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._runtime import compiled_per_model
from ..data.cache import ShardCache, Task
from ..data.group_blocks import group_blocks
from ..data.shard import Shard
from ..density import BATCH_SIZE
from ..executors import AbstractExecutor
from ..executors.base import no_progress
from ..model import Model, Modes
from ..space import Point
from ..target import Target

MAX_BLOCK_BYTES = 2**25  # of log likelihoods, and of rows, that are in memory at once

Pointwise = dict[str, np.ndarray]
Reduction = Callable[[Float[np.ndarray, "row draw"]], Pointwise]
"""From the log likelihoods of some rows, or groups, at all draws to numbers for each of them.

It is sent to other processes, so it must be a function of a module, or an object of one.
"""


def pointwise(
    target: Target,
    points: Float[np.ndarray, "draw dim"],
    reduction: Reduction,
    advance: Callable[[int], None] = no_progress,
) -> list[Pointwise]:
    """Return for each shard the reduced log likelihoods of its rows, or groups, in their order.

    Args:
        target: the model, its shards, and where they are evaluated.
        points: draws.
        reduction: what to compute from the log likelihoods of a row.
        advance: called with numbers of rows, or groups, done.
    """
    executor = cast(AbstractExecutor, target.executor)
    work = partial(reduce_shard, points=points, reduction=reduction)
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    return list(executor.map(work, tasks, target.shard_cache, advance, one_by_one=True))


def reduce_shard(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: Float[np.ndarray, "draw dim"],
    reduction: Reduction,
) -> Pointwise:
    """Return the reduced log likelihoods of one shard's rows, or groups; padding is left out."""
    shard = shard_cache.shard(task.shards[0])
    blocks = (
        _row_blocks(shard_cache.model, shard, points)
        if shard_cache.model.local is None
        else _group_blocks(shard_cache.model, shard, points)
    )
    parts = []
    for log_likelihoods in blocks:
        parts.append(reduction(log_likelihoods))
        advance(len(log_likelihoods))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _row_blocks(
    model: Model, shard: Shard, points: Float[np.ndarray, "draw dim"]
) -> Iterator[Float[np.ndarray, "row draw"]]:
    """Yield the log likelihoods of blocks of rows."""

    def evaluate(size: int, first: np.ndarray) -> Array:
        return _row_log_likelihoods(model, size, shard.rows, first, points)

    return blocks_of_rows(shard, len(points), evaluate)


def blocks_of_rows(
    shard: Shard, num_values: int, evaluate: Callable[[int, np.ndarray], Array]
) -> Iterator[Float[np.ndarray, "row draw *axes"]]:
    """Yield values of blocks of rows at all draws; padding is left out.

    Blocks share a shape: the last one starts early enough to be full, and its overlap with the one
    before is dropped.

    Args:
        shard: the rows.
        num_values: the number of values of a row at all draws.
        evaluate: returns the values (draw, row, …) of so many rows from the one with this number.
    """
    is_row = np.asarray(shard.weights) > 0
    num_rows = len(is_row)
    row_bytes = max(8 * num_values, -(-shard.num_bytes // num_rows))
    size = min(num_rows, max(1, MAX_BLOCK_BYTES // row_bytes))
    for begin in range(0, num_rows, size):
        first = min(begin, num_rows - size)
        if not is_row[begin : first + size].any():
            continue
        values = np.asarray(evaluate(size, np.asarray(first)), float)
        chosen = is_row[first : first + size] & (np.arange(first, first + size) >= begin)
        yield np.ascontiguousarray(np.moveaxis(values[:, chosen], 0, 1))


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1))
def _row_log_likelihoods(
    model: Model,
    size: int,
    rows: dict[str, Array],
    first: Int[Array, ""],
    points: Float[Array, "draw dim"],
) -> Float[Array, "draw row"]:
    block = {name: jax.lax.dynamic_slice_in_dim(array, first, size) for name, array in rows.items()}

    def at_point(point: Point) -> Float[Array, " row"]:
        return model.log_likelihood(model.space.constrain(point), block)

    return jax.lax.map(at_point, points, batch_size=BATCH_SIZE)


def _group_blocks(
    model: Model, shard: Shard, points: Float[np.ndarray, "draw dim"]
) -> Iterator[Float[np.ndarray, "group draw"]]:
    """Yield the log marginal likelihoods of blocks of groups, local parameters integrated out."""
    for block in group_blocks(shard, max(1, MAX_BLOCK_BYTES // (8 * len(points)))):
        assert block.groups is not None
        values = _group_log_marginals(model, block, jnp.asarray(points))
        is_group = np.asarray(block.groups.weights) > 0
        yield np.ascontiguousarray(np.asarray(values, float)[:, is_group].T)


@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _group_log_marginals(
    model: Model, shard: Shard, points: Float[Array, "draw dim"]
) -> Float[Array, "draw group"]:
    local = model.local
    assert local is not None

    def step(modes: Modes, point: Point) -> tuple[Modes, Any]:
        values, modes = local.log_marginals(model.space.constrain(point), shard, modes)
        return modes, values

    return jax.lax.scan(step, local.start(shard), points)[1]
