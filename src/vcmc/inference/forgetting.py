"""The verb `forget`: take rows back from a posterior, and delete them from its run directory."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._compile_cache import use_compile_cache
from ..combiners import AbstractCombiner
from ..data.row_digest import RowDigest, row_digest
from ..errors import StoreError, StoreWarning, warn_user
from ..executors import executor_of
from ..model import Model
from ..progress import ProgressMode
from ..results.lock import locked
from ..results.states import History, State
from ..results.store import Store
from .arguments import MIN_DRAWS, check_combiner, check_integer, check_model
from .batch_plan import BatchPlan, BatchSettings, EarlierShard, Rows, merge_small
from .local_stage import check_mode
from .local_tasks import LocalsMode
from .run_history import RunHistory
from .shard_count import TooManyShards, slots_of
from .stored_update import SPLIT_STREAM, Change, UpdateOptions, make_state, stream_seed

if TYPE_CHECKING:
    from xarray import DataTree

Predicate = Callable[[Mapping[str, np.ndarray]], Any]
"""A function from columns of rows to one boolean per row: whether to delete it."""


class Remainder(NamedTuple):
    """What is left of the shards that hold rows to be deleted.

    Attributes:
        rows: the rows that are left of each of these shards that has any.
        replaced: the places of these shards.
        removed: the digest of the rows to be deleted.
        levels: of columns of text, the numbers of the levels that these rows have.
        batches: the batch of each of the shards that have rows left.
    """

    rows: list[Rows]
    replaced: list[int]
    removed: RowDigest
    levels: dict[str, np.ndarray]
    batches: list[int]


def forget(
    store: str | Path,
    model: Model,
    rows: Predicate | Iterable[int],
    *,
    num_draws: int | None = None,
    combiner: AbstractCombiner | None = None,
    executor: Any = None,
    locals: LocalsMode | None = None,  # noqa: A002
    progress: ProgressMode = True,
    compile_cache: bool = True,
) -> "DataTree":
    """Take rows back from a run: delete them, and everything that was computed from them.

    The shards that hold them are dropped with their draws, the rows that are left of these shards
    are sampled anew, and all shards are combined again. Then all earlier states of the run
    directory are deleted, as they hold the rows or draws that depend on them: there is no going
    back. Copies of the rows elsewhere, e.g. in files of yours, are not touched.

    Args:
        store: a run directory.
        model: the model of the run.
        rows: a function from a mapping of columns to one boolean per row, e.g.
            `lambda rows: rows["person"] == 17`; or the numbers of shards whose rows are all deleted
            (`tree["shard_batches"]` says which update brought them).
        num_draws: draws of the posterior; by default as many as before.
        combiner: how draws are combined; by default `combiners.Variational()`.
        executor: where shards are sampled and evaluated; by default `executors.Local()`.
        locals: for a model with groups, how local parameters are reported, as in `infer`.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.
        compile_cache: whether to use the user's cache of compiled programs, if there is one.

    Returns:
        The new result, like that of `update`. Its history begins anew, as estimates of earlier
        states depend on the rows that were deleted.
    """
    check_model(model)
    check_mode(locals, has_store=True)
    if num_draws is not None:
        check_integer("num_draws", num_draws, MIN_DRAWS)
    if combiner is not None:
        check_combiner(combiner)
    options = UpdateOptions(
        None, None, num_draws, combiner, executor_of(executor), locals, progress
    )
    run = Store(store)
    if not run.folder.is_dir():
        raise StoreError(f"there is no run directory {run.folder}.")
    with use_compile_cache(compile_cache), locked(run.folder):
        return _forget(RunHistory(History(run), model, options.executor), rows, options)


def _forget(runs: RunHistory, rows: Any, options: UpdateOptions) -> "DataTree":
    history, model = runs.history, runs.model
    was_purge_due = history.is_purge_due
    if was_purge_due:  # the same call was interrupted while it deleted files
        history.purge()
    before = runs.state()
    _check_own_rows(runs, before)
    earlier = runs.shards(before)
    column = model.local.groups if model.local else None
    remainder = _remainder(rows, earlier, model, column)
    if not remainder.replaced:
        if was_purge_due:
            return runs.tree(before.number)
        raise ValueError(
            "no row is to be deleted: none of the run's rows meets the condition. Nothing was "
            "changed."
        )
    number = history.next_number()
    seed = before.settings["seed"]
    request = {
        "action": "forget",
        "parent": before.number,
        "digest": list(remainder.removed),
        "seed": seed,
    }
    history.begin(number, request)
    settings = BatchSettings(
        model.space.dim,
        slots_of(options.executor),
        None,
        stream_seed(seed, number, SPLIT_STREAM),
        column,
    )
    while True:
        plan = _plan(remainder, earlier, settings)
        change = Change(
            "forget",
            "",
            -remainder.removed.num_rows,
            RowDigest(),
            plan,
            remainder.levels,
        )
        try:
            make_state(runs, before, number, earlier, change, options)
            break
        except TooManyShards:
            settings = settings._replace(least_size=plan.least_size)
            history.discard(number)
            history.begin(number, request)
    deleted = [str(state.number) for state in history.states() if state.number != number]
    history.purge()
    warn_user(
        f"{remainder.removed.num_rows} rows were deleted from {history.store.folder}, with the "
        f"states that held them ({', '.join(deleted)}), which cannot be restored.",
        StoreWarning,
    )
    return runs.tree(number)


def _check_own_rows(runs: RunHistory, before: State) -> None:
    """Refuse to delete rows that are in a folder of the user's."""
    folders = {runs.partition(name.update).folder for name in before.shards}
    outside = [folder for folder in folders if runs.folder not in folder.parents]
    if outside:
        raise StoreError(
            f"the rows of the run are in {outside[0]}, which you have split yourself: vcmc does "
            "not delete rows there. Make a run of rows that vcmc splits: vcmc.infer(model, rows, "
            "store=...)."
        )


def _remainder(
    rows: Any, earlier: list[EarlierShard], model: Model, column: str | None
) -> Remainder:
    """Return what is left of the shards that hold rows to be deleted."""
    chosen = None if callable(rows) else _chosen_shards(rows, len(earlier))
    left: list[Rows] = []
    replaced: list[int] = []
    batches: list[int] = []
    removed = RowDigest()
    levels: dict[str, np.ndarray] = {}
    for place, shard in enumerate(earlier):
        if chosen is not None and place not in chosen:
            continue
        columns = shard.read(column)
        count = len(next(iter(columns.values())))
        is_removed = np.ones(count, bool)
        if chosen is None:
            is_removed = _checked_mask(_called(rows, _decoded(columns, model)), count)
        if not is_removed.any():
            continue
        replaced.append(place)
        out = {name: array[is_removed] for name, array in columns.items()}
        removed = removed.plus(row_digest(out, column))
        for name in model.levels.keys() & out.keys():
            levels[name] = np.union1d(levels.get(name, out[name][:0]), out[name])
        if not is_removed.all():
            left.append({name: array[~is_removed] for name, array in columns.items()})
            batches.append(shard.batch)
    if len(replaced) == len(earlier) and not left:
        raise ValueError("all rows of the run would be deleted. Delete the run directory instead.")
    return Remainder(left, replaced, removed, levels, batches)


def _decoded(columns: Rows, model: Model) -> Rows:
    """Return columns with the text of levels in place of their numbers."""
    return {
        name: model.levels[name][array] if name in model.levels else array
        for name, array in columns.items()
    }


def _called(predicate: Predicate, columns: Rows) -> Any:
    """Call the function that says which rows to delete."""
    try:
        return predicate(columns)
    except KeyError as error:
        if error.args and error.args[0] in columns:
            raise
        raise ValueError(
            f"the function that says which rows to delete asks for {error}, but the run keeps the "
            f"columns {sorted(columns)}. A run keeps what its model reads: to delete by another "
            "column, split the rows yourself, vcmc.infer(model, vcmc.split(rows, 20), store=...)."
        ) from error


def _checked_mask(mask: Any, count: int) -> np.ndarray:
    values = np.asarray(mask)
    if values.shape != (count,) or values.dtype != bool:
        raise ValueError(
            "the function that says which rows to delete must return one boolean per row, e.g. "
            f'lambda rows: rows["person"] == 17; got {values.dtype} of shape {values.shape} for '
            f"{count} rows."
        )
    return values


def _chosen_shards(shards: Any, num_shards: int) -> set[int]:
    numbers = {int(number) for number in np.atleast_1d(np.asarray(list(shards)))}
    if wrong := sorted(number for number in numbers if not 0 <= number < num_shards):
        raise ValueError(f"shards must be numbers from 0 to {num_shards - 1}; got {wrong}.")
    if not numbers:
        raise ValueError("there must be a shard to delete; got none.")
    return numbers


def _plan(remainder: Remainder, earlier: list[EarlierShard], settings: BatchSettings) -> BatchPlan:
    others = [place for place in range(len(earlier)) if place not in remainder.replaced]
    if not remainder.rows and len(others) == 1:
        # the draws of a single shard are the result: they must have the whole prior
        rows = earlier[others[0]].read(settings.group_column)
        batches = [earlier[others[0]].batch]
        return BatchPlan([rows], frozenset(range(len(earlier))), True, 0, batches)
    if not remainder.rows:
        return BatchPlan([], frozenset(remainder.replaced), True, 0)
    return merge_small(remainder.rows, earlier, remainder.replaced, remainder.batches, settings)
