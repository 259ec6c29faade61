"""The last stage of a run with groups: draw local parameters, in the processes that hold the rows.

Every draw of the global parameters gets one draw of every group's local parameters. Where all of
them would be too large for a result, they are summarized shard by shard.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.cache import ShardCache, Task
from ..data.grouped import GroupedPartition
from ..data.labels import COORDS_GROUP, DIMS_GROUP, Dims
from ..groups.local_draws import STATISTICS, draw_locals, summarize_locals
from ..groups.local_model import LocalModel
from ..target import Target
from .assessment import Assessment

if TYPE_CHECKING:
    from xarray import DataTree

LocalsMode = Literal["draws", "summary", "none"]
MODES = ("draws", "summary", "none")
MAX_TREE_BYTES = 2**28  # of local draws in a result, unless the user asks for more
MAX_SUMMARY_DRAWS = 1000  # that are summarized: means are off by 0.03 sd
MIN_EFFICIENCY = 0.1  # of proposals; below, one proposal in sixteen has most of the weight
LOCAL_STREAM = 3  # of the seed's random numbers; the first ones are those of preparing and sampling


class LocalResults(NamedTuple):
    """The groups of a tree that hold local parameters, and a doubt about them, if there is one."""

    groups: dict[str, dict[str, np.ndarray]]
    doubt: str = ""


def check_mode(mode: Any) -> None:
    """Refuse what is not a way to report local parameters."""
    if mode is not None and mode not in MODES:
        raise ValueError(f'locals must be "draws", "summary" or "none"; got {mode!r}.')


def local_results(
    target: Target, points: Float[np.ndarray, "chain draw dim"], mode: LocalsMode | None, seed: int
) -> LocalResults:
    """Draw the local parameters of all groups, and return them as groups of a tree.

    Args:
        target: the target of a model with local parameters.
        points: the posterior draws.
        mode: what to report; by default all draws where they are few enough, else a summary.
        seed: the seed of the run.
    """
    local = cast(LocalModel, target.model.local)
    partition = cast(GroupedPartition, target.shard_cache.partition)
    num_chains, num_draws, dim = points.shape
    num_values = num_chains * num_draws * len(partition.labels) * local.space.dim
    if mode is None:
        mode = "draws" if 8 * num_values <= MAX_TREE_BYTES else "summary"
    if mode == "none":
        return LocalResults({})
    flat = points.reshape(-1, dim)
    if mode == "summary":
        count = min(len(flat), MAX_SUMMARY_DRAWS)
        flat = flat[np.arange(count) * len(flat) // count]
    key = jax.random.fold_in(jax.random.key(seed), LOCAL_STREAM)
    work = partial(
        _draw_shard, points=flat, key_data=np.asarray(jax.random.key_data(key)), mode=mode
    )
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    parts = list(target.executor.map(work, tasks, target.shard_cache))
    members = list(partition.members)
    if len(partition.absent):
        parts.append(
            _draw(target.model, partition.absent_shard(), target.num_shards, flat, key, mode)
        )
        members.append(partition.absent)
    arrays = _assembled([values for values, _ in parts], members, len(partition.labels))
    dims = _dims(arrays, local.groups, target.model.labels.dims)
    efficiency = np.concatenate([share for _, share in parts])
    groups: dict[str, dict[str, np.ndarray]] = {
        DIMS_GROUP: dims,
        COORDS_GROUP: {local.groups: partition.labels},
    }
    if mode == "draws":
        groups["posterior"] = {
            name: array.reshape(num_chains, num_draws, *array.shape[1:])
            for name, array in arrays.items()
        }
    else:
        groups |= {
            f"local_{statistic}": {name: array[index] for name, array in arrays.items()}
            for index, statistic in enumerate(STATISTICS)
        }
    return LocalResults(groups, _doubt(efficiency))


def stored_mode(tree: "DataTree", local: LocalModel) -> LocalsMode:
    """Return how a tree reports local parameters."""
    if "local_mean" in tree.children:
        return "summary"
    return "draws" if set(local.space) <= set(tree["posterior"].data_vars) else "none"


def with_locals(
    target: Target,
    points: Float[np.ndarray, "chain draw dim"],
    mode: LocalsMode | None,
    seed: int,
    groups: Mapping[str, Mapping[str, np.ndarray]],
    assessment: Assessment,
) -> tuple[dict[str, dict[str, np.ndarray]], Assessment]:
    """Return the groups of a tree with local parameters, and the assessment with their doubt."""
    results = local_results(target, points, mode, seed)
    if results.doubt:
        assessment = assessment.with_doubt(results.doubt)
    return _merged(groups, results.groups), assessment


def _merged(
    groups: Mapping[str, Mapping[str, np.ndarray]], local: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """Return the groups of a tree with those of local parameters."""
    return {name: {**groups.get(name, {}), **local.get(name, {})} for name in {**groups, **local}}


def _doubt(efficiency: Float[np.ndarray, " group"]) -> str:
    poor = int(np.sum(~(efficiency >= MIN_EFFICIENCY)))
    if not poor:
        return ""
    return (
        f"The local draws of {poor} of {len(efficiency)} groups are unreliable: their local "
        "parameters are far from normal. Global parameters are not affected."
    )


def _draw_shard(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: np.ndarray,
    key_data: np.ndarray,
    mode: LocalsMode,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    del advance
    (number,) = task.shards
    key = jax.random.wrap_key_data(jnp.asarray(key_data))
    return _draw(shard_cache.model, shard_cache.shard(number), number, points, key, mode)


def _draw(
    model: Any, shard: Any, number: int, points: np.ndarray, key: Any, mode: LocalsMode
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    drawn = draw_locals(model.space, model.local, shard, points, jax.random.fold_in(key, number))
    values = drawn.params if mode == "draws" else summarize_locals(drawn.params)
    return values, drawn.efficiency


def _assembled(
    parts: list[dict[str, np.ndarray]], members: list[np.ndarray], num_groups: int
) -> dict[str, np.ndarray]:
    """Return the values of all groups in the order of their labels, along the second axis."""
    arrays = {}
    for name, first in parts[0].items():
        array = np.empty((len(first), num_groups, *first.shape[2:]), first.dtype)
        for part, numbers in zip(parts, members, strict=True):
            array[:, numbers] = part[name]
        arrays[name] = array
    return arrays


def _dims(
    arrays: Mapping[str, np.ndarray], column: str, labels: Mapping[str, Dims]
) -> dict[str, np.ndarray]:
    """Return the names of axes: that of groups, and those that the model gives to the others."""
    dims = {}
    for name, array in arrays.items():
        others = labels.get(name, ())[1:] or (None,) * (array.ndim - 2)
        dims[name] = np.array([column, *(dim or "" for dim in others)])
    return dims
