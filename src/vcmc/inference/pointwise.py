"""Pointwise values: some numbers for every row, or group, from its log likelihoods at all draws.

A matrix of draws × rows does not fit into memory where rows are many. So the process that holds
the rows of a shard evaluates a block of them at all draws, reduces the block to some numbers per
row, and goes on to the next. Only these numbers are returned.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._runtime import compiled_per_model, thread_map
from ..data.cache import ShardCache, Task
from ..data.group_blocks import group_blocks
from ..data.shard import Shard
from ..density import padded_batches
from ..executors import AbstractExecutor
from ..executors.base import no_progress
from ..model import Model, Modes
from ..space import Point
from ..target import Target

MAX_BLOCK_BYTES = 2**24  # of log likelihoods, or of rows; larger arrays get new memory every time

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
    # fewer shards than cores: blocks of a shard share the cores that are left
    num_threads = -(-executor.count_slots() // target.num_shards) if executor.in_process else 1
    work = partial(reduce_shard, points=points, reduction=reduction, num_threads=num_threads)
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    return list(executor.map(work, tasks, target.shard_cache, advance, one_by_one=True))


def reduce_shard(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: Float[np.ndarray, "draw dim"],
    reduction: Reduction,
    num_threads: int = 1,
) -> Pointwise:
    """Return the reduced log likelihoods of one shard's rows, or groups; padding is left out."""
    model, shard = shard_cache.model, shard_cache.shard(task.shards[0])

    def reduced(log_likelihoods: Float[np.ndarray, "row draw"]) -> Pointwise:
        part = reduction(log_likelihoods)
        advance(len(log_likelihoods))
        return part

    if model.local is None:
        batches = padded_batches(points)

        def of_block(block: RowBlock) -> Pointwise:
            return reduced(_log_likelihoods(model, shard, block, batches, len(points)))

        blocks = row_blocks(shard, len(points))
        parts = list(thread_map(of_block, blocks, num_threads))
    else:
        parts = [reduced(block) for block in _group_blocks(model, shard, points)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Unit(NamedTuple):
    """A row, or group, of a shard: its position among those that are no padding."""

    shard: int
    position: int


def unit_log_likelihoods(
    target: Target, unit: Unit, points: Float[np.ndarray, "draw dim"]
) -> Float[np.ndarray, " draw"]:
    """Return the log likelihoods of one row, or group, at some points."""
    executor = cast(AbstractExecutor, target.executor)
    work = partial(_of_unit, points=points, position=unit.position)
    (values,) = executor.map(work, [Task((unit.shard,))], target.shard_cache)
    return np.asarray(values)


def _of_unit(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: Float[np.ndarray, "draw dim"],
    position: int,
) -> Float[np.ndarray, " draw"]:
    del advance
    model, shard = shard_cache.model, shard_cache.shard(task.shards[0])
    if model.local is None:
        first = int(np.flatnonzero(np.asarray(shard.weights) > 0)[position])
        block = RowBlock(first, 1, np.ones(1, bool))
        return _log_likelihoods(model, shard, block, padded_batches(points), len(points))[0]
    for group_block in group_blocks(shard, _max_groups(points)):
        assert group_block.groups is not None
        is_group = np.asarray(group_block.groups.weights) > 0
        if position < is_group.sum():
            break
        position -= is_group.sum()
    number = int(np.flatnonzero(is_group)[position])
    return np.asarray(_group_log_marginals(model, group_block, jnp.asarray(points)))[:, number]


def _max_groups(points: Float[np.ndarray, "draw dim"]) -> int:
    """Return the largest number of groups of a block."""
    return max(1, MAX_BLOCK_BYTES // (8 * len(points)))


def _log_likelihoods(
    model: Model,
    shard: Shard,
    block: "RowBlock",
    batches: Float[np.ndarray, "batch 32 dim"],
    num_draws: int,
) -> Float[np.ndarray, "row draw"]:
    """Return the log likelihoods of a block of rows at all draws."""
    values = np.asarray(
        _row_log_likelihoods(model, block.size, shard.rows, np.asarray(block.first), batches)
    )
    by_row = np.moveaxis(values, 0, 1).reshape(block.size, -1)[:, :num_draws]
    return by_row if block.is_chosen.all() else by_row[block.is_chosen]


class RowBlock(NamedTuple):
    """Some consecutive rows of a shard.

    Attributes:
        first: the first row.
        size: the number of rows, the same for all blocks of a shard.
        is_chosen: which of them are no padding, and not in the block before.
    """

    first: int
    size: int
    is_chosen: Bool[np.ndarray, " row"]


def row_blocks(shard: Shard, num_values: int) -> list[RowBlock]:
    """Return blocks of a shard's rows, each row of which has some values, e.g. one per draw.

    Blocks share a shape: the last one starts early enough to be full.
    """
    is_row = np.asarray(shard.weights) > 0
    num_rows = len(is_row)
    row_bytes = max(8 * num_values, -(-shard.num_bytes // num_rows))
    size = min(num_rows, max(1, MAX_BLOCK_BYTES // row_bytes))
    blocks = []
    for begin in range(0, num_rows, size):
        first = min(begin, num_rows - size)
        numbers = np.arange(first, first + size)
        is_chosen = is_row[numbers] & (numbers >= begin)
        if is_chosen.any():
            blocks.append(RowBlock(first, size, is_chosen))
    return blocks


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1))
def _row_log_likelihoods(
    model: Model,
    size: int,
    rows: dict[str, Array],
    first: Int[Array, ""],
    batches: Float[Array, "batch 32 dim"],
) -> Float[Array, "batch row 32"]:
    block = {name: jax.lax.dynamic_slice_in_dim(array, first, size) for name, array in rows.items()}

    def at_point(point: Point) -> Float[Array, " row"]:
        return model.log_likelihood(model.space.constrain(point), block)

    # the draws of a batch are neighbours in memory, as they are in the matrix of rows × draws
    return jax.lax.map(jax.vmap(at_point, out_axes=1), batches)


def _group_blocks(
    model: Model, shard: Shard, points: Float[np.ndarray, "draw dim"]
) -> Iterator[Float[np.ndarray, "group draw"]]:
    """Yield the log marginal likelihoods of blocks of groups, local parameters integrated out."""
    for block in group_blocks(shard, _max_groups(points)):
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
