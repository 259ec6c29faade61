"""The jobs behind `vcmc check` and `vcmc report`: a model against its data, and the page."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data.columns import Columns
from ..data.size import FileRows
from ..inference.cross_validation import loo
from ..inference.model_checking import DEFAULT_REPLICATES, posterior_check
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from ..results.posterior_checks import PosteriorCheck
from ..results.report_page import report
from .console import print_line
from .inputs import (
    NO_GROUPS,
    GroupNames,
    columns_in_data,
    load_model_and_rows,
    load_result,
    parse_executor,
    with_column,
)
from .jobs import COMMAND, split_as_before

if TYPE_CHECKING:
    from xarray import DataTree

REPORT = "report.html"  # in a run directory


class ModelFiles(NamedTuple):
    """A model and its rows on the command line.

    Attributes:
        model: the model, as `file.py:name`.
        data: the data file.
        columns: columns of the data by name of the model's array.
        names: what the groups are, if there are any.
    """

    model: str
    data: str
    columns: Columns | None = None
    names: GroupNames = NO_GROUPS

    def load(self, path: str, tree: "DataTree") -> tuple[Model, Any]:
        """Return the model, and the rows split as they were for the result at this path."""
        columns = columns_in_data(self.data, self.columns, self.model, self.names)
        model, rows = load_model_and_rows(self.model, self.data, columns, self.names)
        return model, split_as_before(path, model, rows, tree, columns)

    def load_to_check(
        self, path: str, tree: "DataTree", choice: "CheckChoice"
    ) -> tuple[Model, Any]:
        """Return the model, and the rows as a posterior check takes them.

        Rows of a model with groups, and those of another library, are read in their order. The
        shards of a run have no columns but those of the model.
        """
        columns = columns_in_data(self.data, self.columns, self.model, self.names)
        for name in (choice.by, choice.observed):
            columns = with_column(columns, name)
        model, rows = load_model_and_rows(self.model, self.data, columns, self.names)
        in_order = model.local is not None or isinstance(model.simulate_rows, AbstractHostSimulator)
        if in_order or choice.by or choice.observed:
            return model, rows if isinstance(rows, Mapping) else FileRows(rows, columns)
        return model, split_as_before(path, model, rows, tree, columns)


class CheckChoice(NamedTuple):
    """What to check: the arguments of `posterior_check` of the same names."""

    name: str | None = None
    observed: str | None = None
    by: str | None = None
    num_draws: int = DEFAULT_REPLICATES
    seed: int = 0


def check_model(
    path: str, files: ModelFiles, choice: CheckChoice, executor: str = "local"
) -> PosteriorCheck:
    """Check the model of a result against the rows of a data file."""
    tree = load_result(path)
    model, rows = files.load_to_check(path, tree, choice)
    pool = parse_executor(executor)
    try:
        return posterior_check(
            tree,
            model,
            rows,
            choice.name,
            observed=choice.observed,
            by=choice.by,
            num_draws=choice.num_draws,
            seed=choice.seed,
            executor=pool,
            progress="lines",
        )
    finally:
        pool.close()


def write_report(
    path: str, out: Path | None, title: str | None = None, files: ModelFiles | None = None
) -> Path:
    """Write the report page of a result; return its path.

    By default it is written into the run directory, or beside the ArviZ file. With a model and its
    rows, it has a posterior check, where one can be made, and cross-validation.
    """
    result = Path(path)
    tree = load_result(path)
    default, command = result.with_suffix(".html"), ""
    if result.is_dir():
        default = result / REPORT
        command_file = result / COMMAND
        command = command_file.read_text().strip() if command_file.exists() else ""
    checks, elpd = [], None
    if files is not None:
        try:
            model, rows = files.load_to_check(path, tree, CheckChoice())
            checks = [posterior_check(tree, model, rows, progress="lines")]
        except ValueError as error:  # e.g. no draws of groups
            print_line(f"No posterior check: {error}")
        model, rows = files.load(path, tree)
        elpd = loo(tree, model, rows, progress="lines")
    return report(
        tree,
        out or default,
        title=title or result.absolute().name,
        command=command,
        checks=checks,
        loo=elpd,
    )
