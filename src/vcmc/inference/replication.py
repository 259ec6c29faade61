"""Replicated data of a shard, reduced to summaries in the process that holds its rows.

All rows of a shard are simulated for some draws at a time, so that a replicate of a shard is whole
and memory is set by the block.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..data.cache import ShardCache, Task
from ..diagnostics.merged_statistics import Kind
from ..model import Model
from .pointwise import MAX_BLOCK_BYTES
from .prediction_blocks import Block, BlockWork, as_drawn

GROUP_CODES = "vcmc group"  # the column of rows with the numbers of groups; models do not see it


class Response(NamedTuple):
    """What is replicated, and what it is compared with.

    Attributes:
        name: what the model simulates.
        observed: the column with the data's values.
        by: the column with the groups of rows, if there are any.
        kinds: the summaries to compute.
        keep_values: whether to return the values themselves, too, for functions of the user's.
    """

    name: str
    observed: str
    by: str | None
    kinds: tuple[Kind, ...]
    keep_values: bool


class Part(NamedTuple):
    """Summaries of the rows of one group in one shard.

    Attributes:
        rows: the places of these rows among those of the shard.
        summaries: their summaries.
        values: their values (row, draw, …), if they are kept.
    """

    rows: Int[np.ndarray, " row"]
    summaries: Mapping[Kind, Any]
    values: np.ndarray | None


Parts = dict[Any, Part]
"""By group: what the column of groups holds, or `ALL_ROWS`."""
ALL_ROWS = 0


class Replicates(NamedTuple):
    """Summaries of data and of replicated data.

    Attributes:
        name: what was replicated.
        labels: the labels of groups, if these are known by numbers.
        parts: summaries by group: first those of the data, then those of some replicates at a time.
    """

    name: str
    labels: np.ndarray | None
    parts: Iterable[Mapping[Any, Part]]


@dataclass(frozen=True)
class WithoutColumns:
    """A simulator that does not see some columns; no closure, as it is sent to other processes."""

    simulate: Callable[..., Any]
    columns: frozenset[str]

    def __call__(self, key: Any, params: Any, rows: Mapping[str, Any]) -> Any:
        seen = {name: array for name, array in rows.items() if name not in self.columns}
        return self.simulate(key, params, seen)

    @classmethod
    def of_model(cls, model: Model, columns: frozenset[str]) -> Model:
        """Return the model with such a simulator."""
        assert model.simulate_rows is not None
        changed = copy.copy(model)
        changed.simulate_rows = cls(model.simulate_rows, columns)
        return changed


def observe_shard(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], response: Response
) -> Parts:
    """Return the summaries of a shard's data, as those of one replicate."""
    del advance
    shard = shard_cache.shard(task.shards[0])
    is_row = np.asarray(shard.weights) > 0
    values = np.asarray(shard.rows[response.observed], float)[is_row]
    return parts_of(values[:, None], _groups_of(shard_cache, task, response), response)


def replicate_shard(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    response: Response,
    points: Float[np.ndarray, "draw dim"],
    key: np.ndarray,
) -> Parts:
    """Return the summaries of a shard's replicated data, made for some draws at a time."""
    groups = _groups_of(shard_cache, task, response)
    (number,) = task.shards
    shard = shard_cache.shard(number)
    is_row = np.asarray(shard.weights) > 0
    arrays: Any = shard.rows
    rows = Block(number, len(is_row), arrays, None)
    num_values = int(np.prod(np.shape(shard.rows[response.observed])))
    blocks = []
    for first, block in draw_blocks(points, num_values, MAX_BLOCK_BYTES):
        work = BlockWork(block, folded(key, first), response.name, as_drawn)
        drawn = np.moveaxis(work.values(shard_cache.model, rows), 0, 1)
        values = np.ascontiguousarray(drawn, float)[is_row]
        blocks.append(parts_of(values, groups, response))
        advance(len(block) * len(values))
    return {group: _joined([parts[group] for parts in blocks]) for group in blocks[0]}


def _joined(blocks: Sequence[Part]) -> Part:
    """Return the part of a group for all draws of some blocks."""
    first = blocks[0]
    summaries = {
        kind: kind.join([block.summaries[kind] for block in blocks]) for kind in first.summaries
    }
    kept = [block.values for block in blocks if block.values is not None]
    return Part(first.rows, summaries, np.concatenate(kept, axis=1) if kept else None)


def draw_blocks(
    points: Float[np.ndarray, "draw dim"], num_values: int, max_bytes: int
) -> list[tuple[int, Float[np.ndarray, "draw dim"]]]:
    """Return blocks of draws, equally large but the last, with the number of their first draw."""
    num_blocks = -(-len(points) * num_values * 8 // max_bytes)
    size = max(1, -(-len(points) // max(1, num_blocks)))
    return [(first, points[first : first + size]) for first in range(0, len(points), size)]


def parts_of(
    values: Float[np.ndarray, "row draw *axes"], groups: np.ndarray | None, response: Response
) -> Parts:
    """Return the summaries of values by group; without groups, all rows are one."""
    if groups is None:
        return {ALL_ROWS: _part(values, np.arange(len(values)), response)}
    labels, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return {
        label.item(): _part(values[rows], rows, response)
        for label, rows in zip(labels, members, strict=True)
    }


def _part(values: np.ndarray, rows: np.ndarray, response: Response) -> Part:
    flat = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    summaries = {kind: kind.reduce(flat) for kind in response.kinds}
    return Part(rows, summaries, values if response.keep_values else None)


def merged_parts(shards: Sequence[Parts], row_numbers: Sequence[Int[np.ndarray, " row"]]) -> Parts:
    """Return the summaries of all shards, by group; values are in the order of the rows."""
    return _merged(
        [
            {group: part._replace(rows=numbers[part.rows]) for group, part in parts.items()}
            for parts, numbers in zip(shards, row_numbers, strict=True)
        ]
    )


def merged_blocks(blocks: Iterable[Parts], max_points: int) -> Parts:
    """Return the summaries of all blocks, whose rows have their numbers among all rows.

    Results of equally many blocks are merged two by two, as the digits of a binary counter. What is
    merged keeps at most `max_points` order statistics of a group.
    """
    pending: list[tuple[int, Parts]] = []
    for parts in blocks:
        count = 1
        while pending and pending[-1][0] == count:
            parts = _thinned(_merged([pending.pop()[1], parts]), max_points)
            count *= 2
        pending.append((count, parts))
    return _merged([parts for _, parts in pending])


def _thinned(parts: Parts, max_points: int) -> Parts:
    return {
        group: part._replace(
            summaries={
                kind: summary.thinned(max_points) for kind, summary in part.summaries.items()
            }
        )
        for group, part in parts.items()
    }


def _merged(shards: Sequence[Parts]) -> Parts:
    merged = {}
    for group in sorted({group for parts in shards for group in parts}):
        chosen = [parts[group] for parts in shards if group in parts]
        rows = np.concatenate([part.rows for part in chosen])
        kept = [part.values for part in chosen if part.values is not None]
        values = np.concatenate(kept)[np.argsort(rows)] if kept else None
        summaries = {
            kind: kind.merge([part.summaries[kind] for part in chosen])
            for kind in chosen[0].summaries
        }
        merged[group] = Part(np.sort(rows), summaries, values)
    return merged


def _groups_of(shard_cache: ShardCache, task: Task, response: Response) -> np.ndarray | None:
    if response.by is None:
        return None
    shard = shard_cache.shard(task.shards[0])
    return np.asarray(shard.rows[response.by])[np.asarray(shard.weights) > 0]


def folded(key: np.ndarray, number: int) -> np.ndarray:
    """Return the data of a key for the replicates from the one with this number."""
    wrapped = jax.random.wrap_key_data(jnp.asarray(key))
    return np.asarray(jax.random.key_data(jax.random.fold_in(wrapped, number)))
