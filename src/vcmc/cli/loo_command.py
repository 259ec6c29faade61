"""The command `vcmc loo`: how well a model predicts rows that it has not seen."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..errors import DoubtfulWarning
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
        "loo runs/a model.py:linear rows.parquet --against runs/b model.py:log",
        "loo runs/b radon.py:radon houses.parquet --groups county --num-groups num_counties",
    ),
)
@click.argument("result")
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data")
@click.option("--num-draws", type=int, metavar="N", help="Posterior draws to use; all if left out.")
@click.option("--moment-matching", is_flag=True, help="Move the draws where Pareto's k is large.")
@click.option(
    "--against",
    nargs=2,
    multiple=True,
    metavar="RESULT FILE.PY:NAME",
    help="Another result for the same rows, and its model, to compare with. May be repeated.",
)
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
    against: Sequence[tuple[str, str]],
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    executor: str,
) -> None:
    """Estimate how well a model predicts rows, by leave-one-out cross-validation.

    RESULT is a run directory or an ArviZ file, FILE.PY:NAME its model, and DATA the rows that the
    model was fitted to. Of a hierarchical model with --groups, one group is left out at a time.

    Prints the expected log predictive density (elpd_loo), the effective number of parameters
    (p_loo), and how reliable the terms of all rows are. The exit code is 3 if some are not. With
    --against, models are compared: elpd_diff is the difference to the best one, and dse its
    standard error.
    """
    from ..inference.model_comparison import loo_compare
    from . import jobs
    from .inputs import GroupNames

    with errors_in_one_line():
        elpds: dict[str, ELPDData] = {}
        for path, location in [(result, model), *against]:
            name = f"{path} {location.rpartition(':')[2]}"
            if name in elpds:
                raise ValueError(f"--against must name another result or model; got {name} again.")
            if against:
                print_line(f"{name}:")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                elpds[name] = jobs.leave_one_out(
                    path,
                    location,
                    data,
                    options.parse_columns(columns),
                    GroupNames(groups, num_groups),
                    num_draws=num_draws,
                    moment_matching=moment_matching,
                    executor=executor,
                )
            _print(elpds[name], caught)
        if against:
            print_line(str(loo_compare(elpds)))
        if any(elpd.warning for elpd in elpds.values()):
            raise SystemExit(EXIT_NOT_GOOD)


def _print(elpd: "ELPDData", caught: Sequence[warnings.WarningMessage]) -> None:
    """Print a result, and what is to be said about it; other warnings come first."""
    doubts = [warning for warning in caught if issubclass(warning.category, DoubtfulWarning)]
    for warning in caught:
        if warning not in doubts:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    print_line(str(elpd))
    for warning in doubts:
        print_text(str(warning.message))
