"""The jobs behind `vcmc update` and `vcmc forget`: a run directory, its model, and a file."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import numpy as np

from ..data.columns import Columns
from ..data.files import FilePartition
from ..data.shard_files import rows_of
from ..data.size import FileRows
from ..inference.forgetting import forget
from ..inference.kept_rows import kept_partition
from ..inference.local_tasks import LocalsMode
from ..inference.updating import update
from ..model import Model
from ..results.states import History, current_run
from ..results.store import SETTINGS, Store
from . import options
from .inputs import NO_GROUPS, GroupNames, columns_in_data, load_model, load_rows, parse_executor
from .inputs import with_column as columns_with_weights
from .jobs import COMMAND

if TYPE_CHECKING:
    from xarray import DataTree


@dataclass(frozen=True)
class RunInputs:
    """Which model a run has, and what it reads.

    Attributes:
        model: where the model is defined; None for that of the command that made the run.
        columns: the arrays to make of the columns of a file.
        names: what the groups are, if there are any.
        weights: the column with the weights of rows.
    """

    model: str | None
    columns: Columns | None = None
    names: GroupNames = NO_GROUPS
    weights: str | None = None

    def completed(self, run: Path) -> "RunInputs":
        """Return the inputs with what the command that made the run says."""
        path = run / COMMAND
        if not path.exists():
            _check_is_run(run)
            if self.model is None:
                raise ValueError(
                    f"{run} was not made by `vcmc run`, so that its model is not known. Pass "
                    "--model FILE.PY:NAME."
                )
            return self
        typed = _parsed(path.read_text())
        names = self.names
        if names.groups is None:
            names = GroupNames(typed["groups"], typed["num_groups"])
        return RunInputs(
            self.model or typed["model"],
            self.columns or options.parse_columns(typed["columns"]),
            names,
            typed["weights"],
        )

    def load_model(self, run: Path) -> Model:
        """Return the model, which learns its shapes from rows of the run."""
        return load_model(str(self.model), first_rows(run, self.weights), self.names)


def _check_is_run(run: Path) -> None:
    """Refuse a path that is no run directory."""
    if not run.is_dir():
        raise ValueError(
            f"there is no run directory {run} (the current folder is {Path.cwd()}). Make one: "
            f"vcmc run MODEL.PY:NAME ROWS --out {run}."
        )
    if not (run / SETTINGS).exists() and History(Store(run)).is_plain():
        raise ValueError(
            f"{run} is no run directory, as it has no {SETTINGS}. Name the folder that --out or "
            "store= named."
        )


def _parsed(command: str) -> dict[str, Any]:
    """Return the values of a command `vcmc run …` as it was typed."""
    from .commands import run

    words = shlex.split(command)[2:]
    with click.Context(run, info_name="run") as context:
        run.parse_args(context, words)
        return dict(context.params)


def first_rows(run: Path, weights: str | None) -> dict[str, Any]:
    """Return the rows of a shard of a run, text with the levels of all rows."""
    from pandas import Categorical  # slow to import

    current = current_run(run)
    is_first = current.folder == Store(run).folder
    partition = kept_partition(current) if is_first else FilePartition(current.rows)
    levels = partition.levels
    rows = {name: array for name, array in rows_of(partition.load(0)).items() if name != weights}
    return {
        name: Categorical.from_codes(array, categories=levels[name]) if name in levels else array
        for name, array in rows.items()
    }


def update_run(
    run: Path,
    data: str,
    inputs: RunInputs,
    *,
    name: str | None = None,
    num_shards: int | None = None,
    num_draws: int | None = None,
    locals_mode: str | None = None,
    executor: str = "local",
) -> "DataTree":
    """Add the rows of a file to a run; return the new result.

    Args:
        run: the run directory.
        data: the file of new rows.
        inputs: the model, and what it reads.
        name: a name for the rows.
        num_shards: number of shards for the new rows.
        num_draws: draws of the posterior.
        locals_mode: how local parameters are reported.
        executor: where shards are sampled and evaluated.
    """
    chosen = columns_in_data(data, inputs.columns, str(inputs.model), inputs.names)
    columns = columns_with_weights(chosen, inputs.weights)
    rows = load_rows(data, columns)
    pool = parse_executor(executor)
    try:
        return update(
            run,
            inputs.load_model(run),
            rows if isinstance(rows, Mapping) else FileRows(rows, columns),
            name=name or Path(data).stem,
            num_shards=num_shards,
            num_draws=num_draws,
            locals=cast(LocalsMode | None, locals_mode),
            executor=pool,
            progress="lines",
        )
    finally:
        pool.close()


def forget_rows(
    run: Path,
    inputs: RunInputs,
    conditions: Sequence[str],
    shards: Sequence[int],
    executor: str = "local",
) -> "DataTree":
    """Delete rows of a run that meet all conditions, or whole shards; return the new result."""
    pool = parse_executor(executor)
    chosen: Any = matching(conditions) if conditions else shards
    try:
        return forget(run, inputs.load_model(run), chosen, executor=pool, progress="lines")
    finally:
        pool.close()


def matching(conditions: Sequence[str]) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Return the function that says which rows meet all conditions `COLUMN=VALUE`.

    >>> matching(["person=17"])({"person": np.array([17, 3])}).tolist()
    [True, False]
    """
    pairs = [condition.partition("=") for condition in conditions]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise ValueError(
                f"--where must be COLUMN=VALUE, e.g. person=17; got {name + equals!r}."
            )

    def are_met(rows: Mapping[str, np.ndarray]) -> np.ndarray:
        result = np.ones(len(next(iter(rows.values()))), bool)
        for name, _, value in pairs:
            if name not in rows or rows[name].ndim != 1:
                known = [column for column, array in rows.items() if array.ndim == 1]
                raise ValueError(
                    f"--where must name one of the columns that the run keeps, {known}, which are "
                    f"those that its model reads; got {name!r}. To delete by another column, split "
                    "the rows yourself: vcmc.infer(model, vcmc.split(rows, 20), store=...)."
                )
            result &= rows[name] == _like(rows[name], value)
        return result

    return are_met


def _like(column: np.ndarray, value: str) -> Any:
    """Return a value that was typed as one of a column's type."""
    if column.dtype.kind in "US":
        return value
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"--where compares numbers here, e.g. =17; got {value!r}.") from None
