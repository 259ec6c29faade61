"""The verb `update`: add rows to a posterior."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._compile_cache import use_compile_cache
from ..combiners import AbstractCombiner
from ..data.size import RowsSize
from ..errors import StoreError, StoreWarning, warn_user
from ..executors import executor_of
from ..model import Model
from ..progress import ProgressMode
from ..results.lock import locked
from ..results.states import History, State
from ..results.store import Store
from .arguments import MIN_DRAWS, check_combiner, check_integer, check_model
from .batch_plan import BatchPlan, BatchSettings, EarlierShard, count_for_share, plan_batch
from .local_stage import check_mode
from .local_tasks import LocalsMode
from .new_rows import NewRows, read_new_rows
from .preparation import import_early
from .repeated_rows import repeated_batches, repeated_sentence
from .run_history import RunHistory
from .shard_count import MAX_SHARD_BYTES, TooManyShards, slots_of
from .stored_update import SPLIT_STREAM, Change, UpdateOptions, make_state, stream_seed

if TYPE_CHECKING:
    from xarray import DataTree


def update(
    run: "DataTree | str | Path",
    model: Model,
    new_rows: Any,
    *,
    rows: Any = None,
    name: str | None = None,
    seed: int | None = None,
    num_shards: int | None = None,
    num_draws: int | None = None,
    weights: str | None = None,
    combiner: AbstractCombiner | None = None,
    executor: Any = None,
    locals: LocalsMode | None = None,  # noqa: A002
    progress: ProgressMode = True,
    compile_cache: bool = True,
) -> "DataTree":
    """Add rows to a posterior: sample their shards, and combine all shards again.

    Shards of earlier rows keep their draws. Shift and scale of the combined draws are learned from
    scores of all rows, so that the result is as good as one that is made from scratch, and is
    assessed in the same way.

    Args:
        run: a run directory, which has the earlier rows; or a result, with `rows`. Without them,
            the result stands for them, and its verdict says how far that can be trusted.
        model: the model of the run.
        new_rows: the rows to add, as `infer` takes them, with the same columns.
        rows: all earlier rows, if `run` is a result.
        name: a name for the rows, e.g. "february"; by default the name of their file, or a number.
        seed: seed of all random numbers; by default that of the run. Every update has its own.
        num_shards: number of shards for the new rows. By default as many as suit them; few rows
            are merged with small earlier shards, and sampled with them.
        num_draws: draws of the posterior; by default as many as before.
        weights: the column of rows with their weights; by default that of the run, if any.
        combiner: how draws are combined; by default `combiners.Variational()`.
        executor: where shards are sampled and evaluated; by default `executors.Local()`.
        locals: for a model with groups, how local parameters are reported, as in `infer`.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.
        compile_cache: whether to use the user's cache of compiled programs, if there is one.

    Returns:
        A tree like that of `infer`, with the groups `updates` (number of rows and shards, time,
        verdict and name of every update), `update_mean` and `update_sd` (estimates after each) and
        `shard_batches` (which update brought the rows of a shard).

    In a run directory, every update is a state of its own: `vcmc.history` lists them, and
    `vcmc.restore` goes back to one. A call that was interrupted goes on if it is repeated.
    """
    check_model(model)
    if num_draws is not None:
        check_integer("num_draws", num_draws, MIN_DRAWS)
    if num_shards is not None:
        check_integer("num_shards", num_shards, 1)
    if combiner is not None:
        check_combiner(combiner)
    options = UpdateOptions(
        seed, num_shards, num_draws, combiner, executor_of(executor), locals, progress
    )
    import_early()
    with use_compile_cache(compile_cache):
        if isinstance(run, str | Path):
            check_mode(locals, has_store=True)
            return _update_run(Path(run), model, new_rows, rows, _name(name, new_rows), options)
        check_mode(locals, has_store=False)
        if rows is not None:
            from .tree_update import update_tree

            return update_tree(run, model, new_rows, rows, weights, _name(name, new_rows), options)
        from .surrogate_update import update_without_rows

        return update_without_rows(
            run,
            model,
            new_rows,
            name=_name(name, new_rows),
            seed=seed,
            num_shards=num_shards,
            num_draws=num_draws,
            weights=weights,
            combiner=combiner,
            executor=executor,
            locals=locals,
            progress=progress,
        )


def _name(name: str | None, rows: Any) -> str:
    if name is not None:
        return name
    return Path(rows).stem if isinstance(rows, str | Path) else ""


def _update_run(
    folder: Path, model: Model, new_rows: Any, rows: Any, name: str, options: UpdateOptions
) -> "DataTree":
    """Update a run directory."""
    store = Store(folder)
    if not store.folder.is_dir():
        raise StoreError(
            f"there is no run directory {store.folder}. Make one: vcmc.infer(model, rows, "
            "store=...)."
        )
    with locked(store.folder):
        history = History(store)
        if history.is_purge_due:
            history.purge()
        runs = RunHistory(history, model, options.executor)
        if rows is not None:
            runs.adopt(rows)
        before = runs.state()
        earlier = runs.shards(before)
        column = model.local.groups if model.local else None
        batch = read_new_rows(
            new_rows,
            model,
            before.settings["weights"],
            earlier[0].read(column),
            options.num_shards,
            lambda size: _shards_of_large(size, before, options),
        )
        seed = before.settings["seed"] if options.seed is None else options.seed
        request = {
            "action": "update",
            "parent": before.number,
            "digest": list(batch.digest),
            "seed": seed,
            "num_shards": options.num_shards,
        }
        if (number := history.complete_number(request)) is not None:
            history.go_to(number)
            return runs.tree(number)
        if (known := _known_batch(history, before, batch)) is not None:
            return runs.tree(known.number)
        _warn_of_repeated(history, before, batch, earlier, column)
        number = history.next_number()
        history.begin(number, request)
        settings = BatchSettings(
            model.space.dim,
            slots_of(options.executor),
            options.num_shards,
            stream_seed(seed, number, SPLIT_STREAM),
            column,
        )
        change = Change(
            "update",
            name,
            batch.digest.num_rows,
            batch.digest,
            _plan(batch, earlier, settings),
        )
        while True:
            try:
                return make_state(runs, before, number, earlier, change, options)
            except TooManyShards:
                settings = settings._replace(least_size=change.plan.least_size)
                change = change.with_plan(_plan(batch, earlier, settings))
                history.discard(number)
                history.begin(number, request)


def _known_batch(history: History, before: State, batch: NewRows) -> State | None:
    """Return the state that has added the same rows already, and say so."""
    for state in history.lineage(before.number):
        if state.digest == batch.digest and state.action != "forget":
            what = "the run" if state.action == "run" else f"update {state.number}"
            named = f", {state.name!r}" if state.name else ""
            warn_user(
                f"these rows are in {history.store.folder} already: they are those of {what}"
                f"{named}, {state.time}. Nothing was sampled, and its result is returned.",
                StoreWarning,
            )
            return state
    return None


def _warn_of_repeated(
    history: History,
    before: State,
    batch: NewRows,
    earlier: list[EarlierShard],
    column: str | None,
) -> None:
    """Say if the new rows hold all rows of an earlier batch, besides others."""
    if batch.whole is None:
        return
    if found := repeated_batches(batch.whole, earlier, column):
        names = {state.number: state.name for state in history.lineage(before.number)}
        warn_user(
            f"{repeated_sentence(found, names)} vcmc.restore({str(history.store.folder)!r}, "
            f"{before.number}) goes back.",
            StoreWarning,
        )


def _plan(batch: NewRows, earlier: list[EarlierShard], settings: BatchSettings) -> BatchPlan:
    if batch.whole is not None:
        return plan_batch(batch.whole, earlier, settings)
    return BatchPlan(batch.shards, frozenset(), True, 0)


def _shards_of_large(size: RowsSize, before: State, options: UpdateOptions) -> int:
    """Return the number of shards of a batch that is not read into memory."""
    slots = slots_of(options.executor)
    share = size.num_rows / (size.num_rows + before.total_rows)
    by_size = slots * -(-size.num_bytes // (slots * MAX_SHARD_BYTES))
    return max(count_for_share(share, slots), by_size)
