"""The verb `predict`: values of new rows under the posterior, drawn by the model.

New rows are simulated block by block, in the processes that hold them; by default only the mean,
sd and quantiles of every row are returned.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._runtime import compiled_per_model, limit_programs
from ..data.cache import ShardCache, Task
from ..data.partition import check_seed
from ..data.row_order import row_numbers
from ..data.shard import AbstractPartition
from ..data.size import rows_size
from ..density import BATCH_SIZE
from ..errors import describe
from ..executors import executor_of
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..space import Point
from .arguments import check_integer, check_model, check_result
from .assessment import posterior_points
from .model_rows import model_rows
from .partitioning import as_partition, is_on_disk
from .pointwise import Pointwise, blocks_of_rows

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

ROW_DIM = "row"
QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}
PREDICTION_STREAM = 4  # of the seed's random numbers; the first ones are those of `infer`


def predict(
    tree: "DataTree",
    model: Model,
    rows: Any,
    name: str | None = None,
    *,
    draws: bool = False,
    num_draws: int | None = None,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> "Dataset":
    """Predict values of new rows: draw them from the model at draws of the posterior.

    Args:
        tree: a result of `infer`, `combine` or `refine`.
        model: the model, from `from_numpyro`, or with `simulate=`.
        rows: new rows, as `infer` takes them; they need not have the column that is predicted.
        name: what to predict, e.g. the observed site "y"; it may be left out if there is only one.
        draws: return all draws, of shape (chain, draw, row, …), in place of their mean, sd and
            quantiles.
        num_draws: number of posterior draws to use, evenly spaced; by default all.
        executor: where rows are simulated; by default `executors.Local()`.
        seed: seed of the values that are drawn.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        A dataset with the variables `mean`, `sd`, `q05`, `q50` and `q95` along `row`, in the order
        of the rows; with `draws=True`, with one variable, `name`.
    """
    check_result(tree)
    _check_simulates(model)
    check_seed(seed)
    points = posterior_points(tree, model)
    chains, count = points.shape[:2]
    if num_draws is not None:
        check_integer("num_draws", num_draws, 1)
        points = points[:, _spaced(count, max(1, num_draws // chains))]
    cache = ShardCache(model, _partition(tree, model_rows(rows, model)))
    limit_programs(model)
    chosen = _check_name(model, cache, points[0, 0], name)
    key = jax.random.fold_in(jax.random.key(seed), PREDICTION_STREAM)
    work = partial(
        simulate_shard,
        points=points.reshape(-1, points.shape[2]),
        key=np.asarray(jax.random.key_data(key)),
        name=chosen,
        reduction=_as_drawn if draws else _summarized,
    )
    tasks = [Task((shard,)) for shard in range(cache.num_shards)]
    with ProgressDisplay(progress) as display:
        stage = display.stage("predict", None)
        pool = executor_of(executor)
        parts = list(pool.map(work, tasks, cache, stage.advance, one_by_one=True))
        stage.finish()
    return _dataset(parts, cache.partition, chosen, points.shape[:2])


def simulate_shard(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: Float[np.ndarray, "draw dim"],
    key: np.ndarray,
    name: str,
    reduction: Callable[[np.ndarray], Pointwise],
) -> Pointwise:
    """Return the reduced values of one shard's rows; the key is folded by shard and block."""
    (number,) = task.shards
    model, shard = shard_cache.model, shard_cache.shard(number)
    shard_key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key)), number)
    shape = jax.eval_shape(
        lambda point, rows: _simulate(model)(shard_key, model.space.constrain(point), rows)[name],
        points[0],
        shard.rows,
    ).shape

    def evaluate(size: int, first: np.ndarray) -> Array:
        block_key = jax.random.fold_in(shard_key, int(first))
        return _simulated(model, name, size, shard.rows, first, points, block_key)

    parts = []
    for values in blocks_of_rows(shard, len(points) * int(np.prod(shape[1:])), evaluate):
        parts.append(reduction(values))
        advance(len(values))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1, 2))
def _simulated(
    model: Model,
    name: str,
    size: int,
    rows: dict[str, Array],
    first: Int[Array, ""],
    points: Float[Array, "draw dim"],
    key: Array,
) -> Array:
    block = {
        column: jax.lax.dynamic_slice_in_dim(array, first, size) for column, array in rows.items()
    }

    def at_point(point_and_key: tuple[Point, Array]) -> Array:
        point, point_key = point_and_key
        return _simulate(model)(point_key, model.space.constrain(point), block)[name]

    keys = jax.random.split(key, len(points))
    return jax.lax.map(at_point, (points, keys), batch_size=BATCH_SIZE)


def _summarized(values: np.ndarray) -> Pointwise:
    """Return mean, sd and quantiles over draws, the second axis."""
    quantiles = np.quantile(values, list(QUANTILES.values()), axis=1)
    sd = values.std(axis=1, ddof=1) if values.shape[1] > 1 else np.full(values[:, 0].shape, np.nan)
    return {"mean": values.mean(axis=1), "sd": sd, **dict(zip(QUANTILES, quantiles, strict=True))}


def _as_drawn(values: np.ndarray) -> Pointwise:
    return {"draws": values}


def _spaced(total: int, count: int) -> np.ndarray:
    """Return the numbers of at most `count` evenly spaced draws."""
    count = min(total, count)
    return np.arange(count) * total // count


def _simulate(model: Model) -> Any:
    assert model.simulate_rows is not None
    return model.simulate_rows


def _check_simulates(model: Any) -> None:
    check_model(model)
    if model.local is not None:
        raise ValueError(
            "predict is not available for models with groups yet. Draws of local parameters are in "
            "tree['posterior']: predict from them and the global ones."
        )
    if model.simulate_rows is None:
        raise ValueError(
            "the model does not say how rows are drawn: write vcmc.Model(..., simulate=lambda key, "
            'params, rows: {"y": ...}), or use from_numpyro. For PyMC, '
            "pm.sample_posterior_predictive takes the tree (docs/back.md)."
        )


def _partition(tree: "DataTree", rows: Any) -> AbstractPartition:
    """Return new rows in shards: as many as the result had, but at most one per row."""
    num_shards = int(tree.attrs.get("num_shards", 1))
    if isinstance(rows, AbstractPartition):
        return rows
    if not callable(rows) and not is_on_disk(rows):
        num_shards = min(num_shards, rows_size(rows).num_rows)
    return as_partition(rows, num_shards, seed=0)


def _check_name(model: Model, cache: ShardCache, point: np.ndarray, name: str | None) -> str:
    """Return what to predict, after a trial on the first shard, which computes nothing."""
    rows = cache.shard(0).rows
    try:
        values = jax.eval_shape(
            lambda point, rows: dict(
                _simulate(model)(jax.random.key(0), model.space.constrain(point), rows)
            ),
            point,
            rows,
        )
    except Exception as error:  # of the user's function
        raise ValueError(
            "rows must have the columns that the model predicts from; it fails on new rows with "
            f"the columns {sorted(rows)} ({describe(error)})."
        ) from error
    if name is None and len(values) == 1:
        (name,) = values
    if name is None or name not in values:
        raise ValueError(f"name must be what the model predicts, {sorted(values)}; got {name!r}.")
    num_rows = len(next(iter(rows.values())))
    if values[name].shape[:1] != (num_rows,):
        raise ValueError(
            f"simulate must return {name!r} with one entry per row, shape ({num_rows}, …); got "
            f"{values[name].shape}."
        )
    return name


def _dataset(
    parts: list[Pointwise], partition: AbstractPartition, name: str, counts: tuple[int, ...]
) -> "Dataset":
    from xarray import Dataset

    sizes = [len(next(iter(part.values()))) for part in parts]
    order = np.argsort(np.concatenate(row_numbers(partition, sizes)))
    arrays = {key: np.concatenate([part[key] for part in parts])[order] for key in parts[0]}
    coords = {ROW_DIM: np.arange(len(order))}
    if "draws" in arrays:
        values = np.moveaxis(arrays["draws"], 1, 0)
        values = values.reshape(*counts, *values.shape[1:])
        dims = ["chain", "draw", ROW_DIM, *(f"{name}_dim_{i}" for i in range(values.ndim - 3))]
        return Dataset({name: (dims, values)}, coords)
    dims = [ROW_DIM, *(f"{name}_dim_{i}" for i in range(arrays["mean"].ndim - 1))]
    return Dataset({key: (dims, array) for key, array in arrays.items()}, coords)
