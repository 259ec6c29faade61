"""Draw the local parameters of one shard's groups, in any process, and store them.

A shard's draws are made in blocks of groups, so that memory is set by the block. They are
determined by the key, the number of the shard and the block, so that neither the executor nor a
crash can change them. They are stored by the process that made them if it sees the run directory,
and by the driver otherwise.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..data.cache import ShardCache, Task
from ..data.group_blocks import group_blocks, num_blocks
from ..data.shard import Shard
from ..executors import AbstractExecutor
from ..groups.local_draws import LocalDraws, draw_locals, summarize_locals
from ..model import Model
from ..results.local_files import LocalPart, LocalsFolder, LocalsWriter, file_checksum, new_file

LocalsMode = Literal["draws", "summary", "file", "none"]
MAX_BLOCK_BYTES = 2**26  # of local draws that are in memory at once


@dataclass(frozen=True)
class LocalPlan:
    """How local parameters are drawn.

    Attributes:
        points: draws of the global parameters, one chain after the other.
        num_chains: the number of chains.
        key: data of the key from which all others are folded.
        mode: what to report.
        max_groups: the number of groups that are drawn at once.
        column: the column of groups.
        folder: the folder that local draws are stored in, if any.
        identity: identifies these draws.
        token: the text by which the folder is known.
    """

    points: np.ndarray
    num_chains: int
    key: np.ndarray
    mode: LocalsMode
    max_groups: int
    column: str
    folder: LocalsFolder | None = None
    identity: str = ""
    token: str = ""

    def num_steps(self, num_groups: int) -> int:
        """Return the number of steps that are reported for the groups of a shard."""
        return len(self.points) * num_blocks(num_groups, self.max_groups)


def groups_at_once(num_points: int, dim: int) -> int:
    """Return the number of groups whose draws are made at once.

    >>> groups_at_once(num_points=5000, dim=2)
    838
    """
    return max(1, MAX_BLOCK_BYTES // (8 * num_points * dim))


def draw_parts(
    executor: AbstractExecutor,
    shard_cache: ShardCache,
    tasks: Sequence[Task],
    plan: LocalPlan,
    advance: Callable[[int], None],
) -> Iterator[LocalPart]:
    """Yield the parts of all tasks in their order, stored if there is a folder.

    Where processes do not see the folder, the driver gets the files of few shards at a time.
    """
    work = partial(draw_shard, plan=plan)
    wave = max(1, len(tasks))
    if plan.folder and not executor.in_process:
        sees = partial(_sees_folder, folder=plan.folder, token=plan.token)
        if not all(executor.map(sees, tasks, shard_cache)):
            wave = executor.count_slots()
    for first in range(0, len(tasks), wave):
        chosen = tasks[first : first + wave]
        parts = executor.map(work, chosen, shard_cache, advance, one_by_one=True)
        for task, part in zip(chosen, parts, strict=True):
            if plan.folder and not part.is_stored:
                part = plan.folder.save(task.shards[0], plan.identity, part)
            yield part


def _sees_folder(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    folder: LocalsFolder,
    token: str,
) -> bool:
    del shard_cache, task, advance
    return folder.is_shared(token)


def draw_shard(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], plan: LocalPlan
) -> LocalPart:
    """Draw the local parameters of a shard's groups, and store them if the folder is seen."""
    shard = shard_cache.shard(task.shards[0])
    return draw_groups(shard_cache.model, shard, task, advance, plan)


def draw_groups(
    model: Model, shard: Shard, task: Task, advance: Callable[[int], None], plan: LocalPlan
) -> LocalPart:
    """Draw the local parameters of a shard that is given with its task."""
    (number,) = task.shards
    drawn = _blocks(model, shard, number, advance, plan)
    folder = plan.folder if plan.folder and plan.folder.is_shared(plan.token) else None
    if plan.mode != "file":
        blocks = [(_values(draws, plan), draws.acceptance) for draws in drawn]
        part = _joined(blocks)
    elif folder:
        part = _write(folder.parquet(number), drawn, task, plan)
    else:
        with tempfile.TemporaryDirectory() as elsewhere:
            path = Path(elsewhere, "locals.parquet")
            part = _write(path, drawn, task, plan)._replace(content=path.read_bytes())
    return folder.save(number, plan.identity, part) if folder else part


def _blocks(
    model: Model, shard: Shard, number: int, advance: Callable[[int], None], plan: LocalPlan
) -> Iterator[LocalDraws]:
    assert model.local is not None
    key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(plan.key)), number)
    for index, block in enumerate(group_blocks(shard, plan.max_groups)):
        block_key = jax.random.fold_in(key, index)
        yield draw_locals(model.space, model.local, block, plan.points, block_key, advance)


def _values(draws: LocalDraws, plan: LocalPlan) -> dict[str, np.ndarray]:
    return draws.params if plan.mode == "draws" else summarize_locals(draws.params)


def _write(path: Path, drawn: Iterator[LocalDraws], task: Task, plan: LocalPlan) -> LocalPart:
    """Write draws to a file, and return their summary."""
    assert task.labels is not None
    blocks = []
    first = 0
    with new_file(path) as new:
        writer = LocalsWriter(new, plan.column, plan.num_chains)
        for draws in drawn:
            end = first + len(draws.acceptance)
            writer.write(task.labels[first:end], draws.params)
            blocks.append((_values(draws, plan), draws.acceptance))
            first = end
        writer.close()
    return _joined(blocks)._replace(checksum=file_checksum(path))


def _joined(blocks: list[tuple[dict[str, np.ndarray], np.ndarray]]) -> LocalPart:
    values = {
        name: np.concatenate([values[name] for values, _ in blocks], axis=1)
        for name in blocks[0][0]
    }
    return LocalPart(values, np.concatenate([acceptance for _, acceptance in blocks]))
