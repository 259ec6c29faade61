"""Blocks of new rows, and what draws their values at all draws of the posterior.

A block is sent to whichever process is free, as a shard is, but is dropped when the next one comes:
memory is set by the block, not by the number of rows. Random numbers depend on a block's number,
and those of a new group's local parameters on its label: it is the same group in all blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._runtime import compiled_per_model
from ..data.cache import ShardCache, Task
from ..data.row_blocks import num_entries
from ..data.shard import AbstractPartition
from ..density import BATCH_SIZE
from ..errors import TaskError, describe
from ..executors import AbstractExecutor
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from ..space import Params, Point
from .pointwise import Pointwise

GROUP_STREAM = 2**32 - 1  # of a prediction's random numbers; the first ones are those of blocks
QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


class BlockGroups(NamedTuple):
    """The groups of a block's rows.

    Attributes:
        places: for each row, the place of its group among these.
        known: local draws (draw, group, …); those of new groups have no meaning.
        new: the places of new groups.
        first_rows: for each new group, a row of it.
        hashes: two numbers for each new group, from its label.
    """

    places: Int[np.ndarray, " row"]
    known: dict[str, np.ndarray]
    new: Int[np.ndarray, " new"]
    first_rows: Int[np.ndarray, " new"]
    hashes: Int[np.ndarray, "new 2"]


class Block(NamedTuple):
    """Some rows, padded with copies of the first one.

    Attributes:
        number: the number of the block.
        num_rows: the number of rows without padding.
        rows: the rows.
        groups: their groups, if the model has any.
    """

    number: int
    num_rows: int
    rows: dict[str, np.ndarray]
    groups: BlockGroups | None


class BlockPartition(AbstractPartition):
    """The blocks that are worked on now. In another process, only the last one sent there."""

    in_memory = True

    def __init__(self, blocks: Mapping[int, Block]):
        self.blocks = dict(blocks)

    @property
    def num_shards(self) -> int:
        return 1 + max(self.blocks, default=0)

    def load(self, shard: int) -> Any:
        """Return a block, which is no shard: it is not kept in the cache of shards."""
        return self.blocks[shard]

    def subset(self, shards: Iterable[int]) -> "BlockPartition":
        return BlockPartition({number: self.blocks[number] for number in shards})

    def has(self, shard: int) -> bool:
        return shard in self.blocks


class BlockCache(ShardCache):
    """A model, and the blocks that are worked on now."""

    def __reduce__(self) -> Any:
        return BlockCache, (self.model, self.partition, self.key)

    def subset(self, shards: Any) -> "BlockCache":
        return BlockCache(self.model, self.partition.subset(shards), self.key)

    def merge(self, subset: ShardCache) -> None:
        """Replace the blocks by those that were sent later."""
        self.partition = subset.partition


@dataclass(frozen=True, eq=False)
class BlockWork:
    """Draws the values of one block's rows, and reduces them.

    Attributes:
        points: draws of the posterior.
        key: data of the key of `jax.random`.
        name: what to draw.
        reduction: what to compute from the values (row, draw, …).
    """

    points: Float[np.ndarray, "draw dim"]
    key: np.ndarray
    name: str
    reduction: Callable[[np.ndarray], Pointwise]

    def __call__(
        self, block_cache: ShardCache, task: Task, advance: Callable[[int], None]
    ) -> Pointwise:
        block: Any = block_cache.partition.load(task.shards[0])
        values = np.moveaxis(self.values(block_cache.model, block), 0, 1)
        reduced = self.reduction(np.ascontiguousarray(values, float))
        advance(block.num_rows)
        return reduced

    def values(self, model: Model, block: Block) -> Float[np.ndarray, "draw row *axes"]:
        """Return the values of a block's rows at all draws."""
        key = jax.random.wrap_key_data(jnp.asarray(self.key))
        groups = block.groups
        local = {} if groups is None else self._local(model, block, groups, key)
        block_key = jax.random.fold_in(key, block.number)
        if isinstance(model.simulate_rows, AbstractHostSimulator):
            return self._host_values(model, block, local, block_key)
        places = np.zeros(0, int) if groups is None else groups.places
        values = _simulated(model, self.name, block.rows, places, local, self.points, block_key)
        if values.shape[1] != (size := num_entries(block.rows)):
            raise ValueError(
                f"simulate must return {self.name!r} with one entry per row, shape ({size}, …); "
                f"got {values.shape[1:]}."
            )
        return np.asarray(values)[:, : block.num_rows]

    def _host_values(
        self, model: Model, block: Block, local: dict[str, np.ndarray], key: Array
    ) -> Float[np.ndarray, "draw row *axes"]:
        rows = {name: array[: block.num_rows] for name, array in block.rows.items()}
        places = None if block.groups is None else block.groups.places[: block.num_rows]
        of_rows = {name: values[:, places] for name, values in local.items()}
        params = {name: np.asarray(v) for name, v in _params(model, self.points).items()}
        seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
        return model.simulate_rows.simulate(self.name, seed, params, of_rows, rows)

    def _local(
        self, model: Model, block: Block, groups: BlockGroups, key: Array
    ) -> dict[str, np.ndarray]:
        """Return local draws (draw, group, …) of known and of new groups."""
        if not len(groups.new):
            return groups.known
        key = jax.random.fold_in(key, GROUP_STREAM)
        if isinstance(model.simulate_rows, AbstractHostSimulator):
            drawn = self._host_locals(model, groups, key)
        else:
            count = len(groups.new)
            size = 1 << (count - 1).bit_length()  # few sizes, each compiled once
            numbers = np.resize(groups.first_rows, size)
            rows = {name: array[numbers] for name, array in block.rows.items()}
            hashes = np.resize(groups.hashes, (size, 2))
            values = _new_locals(model, rows, hashes, self.points, key)
            drawn = {name: np.asarray(array)[:, :count] for name, array in values.items()}
        local = {name: array.copy() for name, array in groups.known.items()}
        for name, array in local.items():
            array[:, groups.new] = drawn[name]
        return local

    def _host_locals(self, model: Model, groups: BlockGroups, key: Array) -> dict[str, np.ndarray]:
        params = {name: np.asarray(v) for name, v in _params(model, self.points).items()}
        seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
        parts = [
            model.simulate_rows.simulate_local([*seed, *numbers], params)
            for numbers in groups.hashes.tolist()
        ]
        return {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}


@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _params(model: Model, points: Float[Array, "draw dim"]) -> Params:
    return jax.vmap(model.space.constrain)(points)


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1))
def _simulated(
    model: Model,
    name: str,
    rows: dict[str, Array],
    places: Int[Array, " row"],
    local: dict[str, Array],
    points: Float[Array, "draw dim"],
    key: Array,
) -> Array:
    def at_point(draw: tuple[Point, dict[str, Array], Array]) -> Array:
        point, of_groups, point_key = draw
        of_rows = {name: values[places] for name, values in of_groups.items()}
        return simulate_at(model, point_key, model.space.constrain(point), of_rows, rows)[name]

    keys = jax.random.split(key, len(points))
    return jax.lax.map(at_point, (points, local, keys), batch_size=BATCH_SIZE)


def simulate_at(
    model: Model, key: Array, params: Params, local: Params, rows: Mapping[str, Any]
) -> Mapping[str, Array]:
    """Draw values of rows at one draw, by a model that JAX runs."""
    arguments = (params, rows) if model.local is None else (params, local, rows)
    return dict(model.simulate_rows(key, *arguments))


@compiled_per_model
@partial(jax.jit, static_argnums=0)
def _new_locals(
    model: Model,
    rows: dict[str, Array],
    hashes: Int[Array, "group 2"],
    points: Float[Array, "draw dim"],
    key: Array,
) -> dict[str, Array]:
    """Draw local params (draw, group, …) of new groups from their prior."""
    simulate_local = model.simulate_local
    assert simulate_local is not None
    assert model.local is not None
    names = list(model.local.space)

    def at_point(draw: tuple[Point, Int[Array, ""]]) -> dict[str, Array]:
        point, number = draw
        params = model.space.constrain(point)

        def of_group(group_hash: Array, row: dict[str, Array]) -> dict[str, Array]:
            group_key = key
            for part in (*group_hash, number):
                group_key = jax.random.fold_in(group_key, part)
            one = {name: value[None] for name, value in row.items()}
            local = simulate_local(group_key, params, one)
            return {name: jnp.asarray(local[name])[0] for name in names}

        return jax.vmap(of_group)(hashes, rows)

    numbers = jnp.arange(len(points))
    return jax.lax.map(at_point, (points, numbers), batch_size=BATCH_SIZE)


def map_blocks(
    work: BlockWork,
    model: Model,
    blocks: Iterator[Block],
    executor: AbstractExecutor,
    advance: Callable[[int], None],
) -> Iterator[Pointwise]:
    """Yield the results of blocks in their order; as many blocks are held as run at a time."""
    cache = BlockCache(model, BlockPartition({}))
    num_slots = max(1, executor.count_slots())
    while batch := list(islice(blocks, num_slots)):
        cache.partition = BlockPartition({block.number: block for block in batch})
        tasks = [Task((block.number,)) for block in batch]
        try:
            yield from list(executor.map(work, tasks, cache, advance, one_by_one=True))
        except TaskError as error:
            cause = error.__cause__
            raise TaskError(
                f"new rows could not be simulated ({describe(cause)})."  # type: ignore[arg-type]
            ) from cause


def summarized(values: np.ndarray) -> Pointwise:
    """Return mean, sd and quantiles over draws, the second axis."""
    quantiles = np.quantile(values, list(QUANTILES.values()), axis=1)
    sd = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.full(values[:, 0].shape, np.nan)
    return {"mean": values.mean(axis=1), "sd": sd, **dict(zip(QUANTILES, quantiles, strict=True))}


def as_drawn(values: np.ndarray) -> Pointwise:
    """Return all values."""
    return {"draws": values}
