"""The command `vcmc check`: whether data that the model replicates are like the data."""

from collections.abc import Sequence

import click

from . import options
from .console import EXIT_NOT_GOOD, errors_in_one_line, print_line


@click.command(
    "check",
    epilog=options.examples(
        "check runs/a model.py:model rows.parquet",
        "check runs/a model.py:model rows.parquet --by region --num-draws 1000",
        "check runs/a model.py:model rows.parquet --response obs --observed count",
    ),
)
@click.argument("result")
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data")
@click.option("--response", metavar="NAME", help="What to replicate, if the model has several.")
@click.option("--observed", metavar="COLUMN", help="The column with the data, if not --response.")
@click.option("--by", metavar="COLUMN", help="The column with groups, to check each of them.")
@click.option(
    "--num-draws",
    type=int,
    default=500,
    show_default=True,
    metavar="N",
    help="Number of replicated data sets.",
)
@options.seed
@options.columns
@options.groups
@options.num_groups
@options.executor
def check_command(
    result: str,
    model: str,
    data: str,
    response: str | None,
    observed: str | None,
    by: str | None,
    num_draws: int,
    seed: int,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    executor: str,
) -> None:
    """Check a model against its data, by replicated data.

    RESULT is a run directory or an ArviZ file, FILE.PY:NAME its model, and DATA the rows that the
    model was fitted to. The model draws new data for the same rows, at draws of the posterior.

    Prints statistics of the data and of replicated data, and p-values. The exit code is 3 if the
    data are unlike replicated data.
    """
    from .inputs import GroupNames
    from .model_reports import CheckChoice, ModelFiles, check_model

    with errors_in_one_line():
        names = GroupNames(groups, num_groups)
        files = ModelFiles(model, data, options.parse_columns(columns), names)
        choice = CheckChoice(response, observed, by, num_draws, seed)
        check = check_model(result, files, choice, executor)
        print_line(str(check))
        if check.extreme:
            raise SystemExit(EXIT_NOT_GOOD)
