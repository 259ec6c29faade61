"""The command `vcmc evidence`: the log marginal likelihood of a model."""

from collections.abc import Sequence

import click

from . import options
from .console import EXIT_NOT_GOOD, errors_in_one_line, print_text


@click.command(
    "evidence",
    short_help="Estimate the log marginal likelihood of a model.",
    epilog=options.examples(
        "evidence runs/a model.py:model rows.parquet",
        "evidence runs/a model.py:model rows.parquet --num-draws 4000 --executor processes",
    ),
)
@click.argument("result")
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data")
@click.option(
    "--num-draws",
    type=int,
    default=1000,
    show_default=True,
    metavar="N",
    help="Points at which the log density is evaluated.",
)
@options.seed
@options.columns
@options.groups
@options.num_groups
@options.executor
def evidence_command(
    result: str,
    model: str,
    data: str,
    num_draws: int,
    seed: int,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    executor: str,
) -> None:
    """Estimate the log marginal likelihood of a model, for Bayes factors.

    RESULT is a run directory or an ArviZ file, FILE.PY:NAME its model, and DATA the rows that the
    model was fitted to. Weights of rows are those of the result.

    Prints the estimate and its standard error. The exit code is 3 if it is poor.
    """
    from . import jobs
    from .inputs import GroupNames

    with errors_in_one_line():
        found = jobs.log_evidence(
            result,
            model,
            data,
            options.parse_columns(columns),
            GroupNames(groups, num_groups),
            num_draws=num_draws,
            seed=seed,
            executor=executor,
        )
        print_text(str(found))
        if found.verdict != "good":
            raise SystemExit(EXIT_NOT_GOOD)
