"""The last stage of a run with groups: draw local parameters, in the processes that hold the rows.

Every draw of the global parameters gets one draw of every group's local parameters. Where all of
them would be too large for a result, they are summarized shard by shard.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import Float

from ..data.cache import Task
from ..data.grouped import GroupedPartition
from ..data.labels import COORDS_GROUP, DIMS_GROUP, Dims
from ..executors import AbstractExecutor
from ..executors.base import no_progress
from ..groups.local_draws import STATISTICS
from ..groups.local_model import LocalModel
from ..progress import ProgressDisplay
from ..results.local_files import LocalIndex, LocalPart, LocalsFolder, check_pyarrow, identity_of
from ..results.store import LOCAL_DRAWS, state_versions
from ..results.tree import NUM_ROWS, SIZES_GROUP
from ..target import Target
from .assessment import Assessment
from .local_tasks import LocalPlan, LocalsMode, draw_groups, draw_parts, groups_at_once

if TYPE_CHECKING:
    from xarray import DataTree

MODES = ("draws", "summary", "file", "none")
MAX_TREE_BYTES = 2**28  # of local draws in a result, unless the user asks for more
MAX_SUMMARY_DRAWS = 1000  # that are summarized: means are off by 0.03 sd
MIN_ACCEPTANCE = 0.1  # of proposals; below, hundreds of draws in thousands are different
LOCAL_STREAM = 3  # of the seed's random numbers; the first ones are those of preparing and sampling


@dataclass(frozen=True)
class LocalsRequest:
    """How local parameters are to be reported.

    Attributes:
        mode: what to report; None means all draws where they are few enough, else a summary.
        seed: the seed of the run.
        folder: where local draws are stored, if the run has a directory.
        display: where progress is shown.
    """

    mode: LocalsMode | None
    seed: int
    folder: LocalsFolder | None = None
    display: ProgressDisplay | None = None


class LocalResults(NamedTuple):
    """The groups of a tree that hold local parameters, its attributes, and a doubt, if any."""

    groups: dict[str, dict[str, np.ndarray]]
    settings: dict[str, str]
    doubt: str = ""


def check_mode(mode: Any, has_store: bool) -> None:
    """Refuse what is not a way to report local parameters."""
    if mode is not None and mode not in MODES:
        raise ValueError(f'locals must be "draws", "summary", "file" or "none"; got {mode!r}.')
    if mode == "file":
        if not has_store:
            raise ValueError(
                'locals="file" writes to the run directory: pass one, e.g. '
                'infer(..., store="runs/a", locals="file").'
            )
        check_pyarrow()


def local_results(
    target: Target, points: Float[np.ndarray, "chain draw dim"], request: LocalsRequest
) -> LocalResults:
    """Draw the local parameters of all groups, and return them as groups of a tree.

    Args:
        target: the target of a model with local parameters.
        points: the posterior draws.
        request: what to report.
    """
    local = cast(LocalModel, target.model.local)
    partition = cast(GroupedPartition, target.shard_cache.partition)
    plan = _plan(local, partition, points, request)
    if plan.mode == "none":
        return LocalResults({}, {})
    parts = _parts(target, partition, plan, request.display)
    members = [*partition.members, *([partition.absent] if len(partition.absent) else [])]
    arrays = _assembled([part.values for part in parts], members, len(partition.labels))
    dims = _dims(arrays, local.groups, target.model.labels.dims)
    groups: dict[str, dict[str, np.ndarray]] = {
        DIMS_GROUP: {**dims, NUM_ROWS: np.array([local.groups])},
        COORDS_GROUP: {local.groups: partition.labels},
        SIZES_GROUP: {NUM_ROWS: _group_sizes(partition)},
    }
    settings: dict[str, str] = {}
    if plan.mode == "draws":
        groups["posterior"] = {
            name: array.reshape(*points.shape[:2], *array.shape[1:])
            for name, array in arrays.items()
        }
    else:
        groups |= {
            f"local_{statistic}": {name: array[index] for name, array in arrays.items()}
            for index, statistic in enumerate(STATISTICS)
        }
    if plan.mode == "file" and plan.folder:
        shapes = {name: array.shape[2:] for name, array in arrays.items()}
        plan.folder.save_index(_index(partition.labels, members, plan, shapes))
        settings[LOCAL_DRAWS] = str(plan.folder.path)
    return LocalResults(groups, settings, _doubt(np.concatenate([p.acceptance for p in parts])))


def _plan(
    local: LocalModel,
    partition: GroupedPartition,
    points: Float[np.ndarray, "chain draw dim"],
    request: LocalsRequest,
) -> LocalPlan:
    num_chains, num_draws, dim = points.shape
    num_values = num_chains * num_draws * len(partition.labels) * local.space.dim
    mode = request.mode
    if mode is None:
        mode = "draws" if 8 * num_values <= MAX_TREE_BYTES else "summary"
    flat = points.reshape(-1, dim)
    if mode == "summary":
        count = min(len(flat), MAX_SUMMARY_DRAWS)
        flat = flat[np.arange(count) * len(flat) // count]
    key = jax.random.fold_in(jax.random.key(request.seed), LOCAL_STREAM)
    plan = LocalPlan(
        flat,
        num_chains,
        np.asarray(jax.random.key_data(key)),
        mode,
        groups_at_once(len(flat), local.space.dim),
        local.groups,
    )
    if request.folder is None or mode == "none":
        return plan
    identity = identity_of(
        flat, plan.key, partition.labels, mode=mode, chains=num_chains, versions=state_versions()
    )
    token = request.folder.begin(identity)
    return replace(plan, folder=request.folder, identity=identity, token=token)


def _parts(
    target: Target, partition: GroupedPartition, plan: LocalPlan, display: ProgressDisplay | None
) -> list[LocalPart]:
    """Return what was drawn for each shard, and for groups without rows, or stored before."""
    labels = [partition.labels[numbers] for numbers in partition.members]
    if plan.mode != "file":
        labels = [None for _ in labels]
    tasks = [Task((shard,), labels=labels[shard]) for shard in range(target.num_shards)]
    absent = partition.absent
    total = sum(plan.num_steps(len(numbers)) for numbers in [*partition.members, absent])
    stage = display.stage("local draws", total) if display else None
    advance = stage.advance if stage else no_progress
    parts: dict[int, LocalPart] = {}
    for shard in range(target.num_shards + bool(len(absent))) if plan.folder else ():
        if stored := cast(LocalsFolder, plan.folder).part(shard, plan.identity):
            parts[shard] = stored
            advance(plan.num_steps(len(stored.acceptance)))
    missing = [task for task in tasks if task.shards[0] not in parts]
    executor = cast(AbstractExecutor, target.executor)
    drawn = draw_parts(executor, target.shard_cache, missing, plan, advance)
    parts |= {task.shards[0]: part for task, part in zip(missing, drawn, strict=True)}
    last = target.num_shards
    if len(absent) and last not in parts:
        task = Task((last,), labels=partition.labels[absent])
        parts[last] = draw_groups(target.model, partition.absent_shard(), task, advance, plan)
    if stage:
        stage.finish()
    return [parts[number] for number in sorted(parts)]


def _index(
    labels: np.ndarray,
    members: list[np.ndarray],
    plan: LocalPlan,
    shapes: dict[str, tuple[int, ...]],
) -> LocalIndex:
    """Return the file of every group, and its place there."""
    files, places = np.empty(len(labels), int), np.empty(len(labels), int)
    for file, numbers in enumerate(members):
        files[numbers], places[numbers] = file, np.arange(len(numbers))
    num_draws = len(plan.points) // plan.num_chains
    return LocalIndex(
        labels, files, places, plan.column, plan.num_chains, num_draws, shapes, plan.identity
    )


def stored_mode(tree: "DataTree", local: LocalModel) -> LocalsMode:
    """Return how a tree reports local parameters."""
    if "local_mean" in tree.children:
        return "summary"
    return "draws" if set(local.space) <= set(tree["posterior"].data_vars) else "none"


def with_locals(
    target: Target,
    points: Float[np.ndarray, "chain draw dim"],
    request: LocalsRequest,
    groups: Mapping[str, Mapping[str, np.ndarray]],
    assessment: Assessment,
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str], Assessment]:
    """Return the groups of a tree with local parameters, its attributes, and the assessment."""
    results = local_results(target, points, request)
    if results.doubt:
        assessment = assessment.with_doubt(results.doubt)
    return _merged(groups, results.groups), results.settings, assessment


def _merged(
    groups: Mapping[str, Mapping[str, np.ndarray]], local: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """Return the groups of a tree with those of local parameters."""
    return {name: {**groups.get(name, {}), **local.get(name, {})} for name in {**groups, **local}}


def _doubt(acceptance: Float[np.ndarray, " group"]) -> str:
    poor = int(np.sum(~(acceptance >= MIN_ACCEPTANCE)))
    if not poor:
        return ""
    return (
        f"The local draws of {poor} of {len(acceptance)} groups are unreliable: their local "
        "parameters are far from normal. Global parameters are not affected."
    )


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


def _group_sizes(partition: GroupedPartition) -> np.ndarray:
    """Return the number of rows of every group, in the order of their labels."""
    sizes = np.zeros(len(partition.labels), np.int64)
    for numbers, counts in zip(partition.members, partition.sizes, strict=True):
        sizes[numbers] = counts
    return sizes


def _dims(
    arrays: Mapping[str, np.ndarray], column: str, labels: Mapping[str, Dims]
) -> dict[str, np.ndarray]:
    """Return the names of axes: that of groups, and those that the model gives to the others."""
    dims = {}
    for name, array in arrays.items():
        others = labels.get(name, ())[1:] or (None,) * (array.ndim - 2)
        dims[name] = np.array([column, *(dim or "" for dim in others)])
    return dims
