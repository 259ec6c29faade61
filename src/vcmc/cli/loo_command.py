"""The command `vcmc loo`: how well a model predicts rows that it has not seen."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from . import options
from .console import EXIT_NOT_GOOD, errors_in_one_line, print_line, print_text

if TYPE_CHECKING:
    from arviz_stats import ELPDData


@click.command(
    "loo",
    short_help="Estimate how well a model predicts rows, by cross-validation.",
    epilog=options.examples(
        "loo runs/a model.py:model rows.parquet",
        "loo runs/a model.py:model rows.parquet --num-draws 1000 --executor processes",
        "loo runs/b radon.py:radon houses.parquet --groups county --num-groups num_counties",
    ),
)
@click.argument("result")
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data")
@click.option("--num-draws", type=int, metavar="N", help="Posterior draws to use; all if left out.")
@click.option("--moment-matching", is_flag=True, help="Move the draws where Pareto's k is large.")
@options.columns
@options.groups
@options.num_groups
@options.executor
def loo_command(
    result: str,
    model: str,
    data: str,
    num_draws: int | None,
    moment_matching: bool,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    executor: str,
) -> None:
    """Estimate how well a model predicts rows, by leave-one-out cross-validation.

    RESULT is a run directory or an ArviZ file, FILE.PY:NAME its model, and DATA the rows that the
    model was fitted to. Of a hierarchical model with --groups, one group is left out at a time.

    Prints the expected log predictive density (elpd_loo), the effective number of parameters
    (p_loo), and how reliable the terms of all rows are. The exit code is 3 if some are not.
    """
    from . import jobs
    from .inputs import GroupNames

    with errors_in_one_line(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        elpd = jobs.leave_one_out(
            result,
            model,
            data,
            options.parse_columns(columns),
            GroupNames(groups, num_groups),
            num_draws=num_draws,
            moment_matching=moment_matching,
            executor=executor,
        )
        doubts = [warning for warning in caught if issubclass(warning.category, UserWarning)]
        _conclude(elpd, [str(warning.message) for warning in doubts])


def _conclude(elpd: "ELPDData", messages: list[str]) -> None:
    """Print a result and warnings; exit with `EXIT_NOT_GOOD` if some terms are unreliable."""
    print_line(str(elpd))
    for message in messages:
        print_text(message)
    if elpd.warning:
        raise SystemExit(EXIT_NOT_GOOD)
