"""The commands `vcmc update`, `vcmc log` and `vcmc forget`: a run directory as rows come and go."""

from collections.abc import Sequence
from pathlib import Path

import click

from . import options
from .console import conclude, errors_in_one_line, print_line

RESUME_HINT = "the same command goes on."

run_model = click.option(
    "--model",
    metavar="FILE.PY:NAME",
    help="The model of the run; by default the one that `vcmc run` was given.",
)


@click.command(
    "update",
    epilog=options.examples(
        "update runs/a february.parquet",
        "update runs/a february.parquet --name february --executor processes:8",
        "update runs/b new.npz --model model.py:model",
    ),
)
@click.argument("run", metavar="RUN")
@click.argument("data", metavar="ROWS")
@run_model
@click.option("--name", metavar="TEXT", help="Name of the rows; by default that of the file.")
@click.option(
    "--num-shards",
    type=click.IntRange(1),
    metavar="N",
    help="Number of shards for the new rows; chosen by vcmc if left out.",
)
@click.option("--num-draws", type=int, metavar="N", help="Draws of the posterior.")
@options.columns
@options.groups
@options.num_groups
@options.local_parameters
@options.executor
@options.title
def update_command(
    run: str,
    data: str,
    model: str | None,
    name: str | None,
    num_shards: int | None,
    num_draws: int | None,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    locals_mode: str | None,
    executor: str,
    title: str | None,
) -> None:
    """Add the rows of a file to the posterior of a run directory.

    Only shards of new rows are sampled. Model, columns and groups are those of `vcmc run`, unless
    they are given. Writes a new report, and prints the estimates and how accurate they are. The
    exit code is 3 if the result is not good.
    """
    from ..inference.assessment import stored_diagnosis
    from ..inference.estimates import summary
    from .inputs import GroupNames
    from .model_reports import write_report
    from .update_job import RunInputs, update_run

    with errors_in_one_line(RESUME_HINT):
        inputs = RunInputs(
            model, options.parse_columns(columns), GroupNames(groups, num_groups)
        ).completed(Path(run))
        tree = update_run(
            Path(run),
            data,
            inputs,
            name=name,
            num_shards=num_shards,
            num_draws=num_draws,
            locals_mode=locals_mode,
            executor=executor,
        )
        page = write_report(run, None, title)
        conclude(
            stored_diagnosis(tree),
            f"The result is in {run}: vcmc.load({run!r}). The report is in {page}.",
            "",
            summary(tree).table(with_errors=False),
        )


@click.command("log", epilog=options.examples("log runs/a", "log runs/a --restore 2"))
@click.argument("run", metavar="RUN")
@click.option(
    "--restore", type=int, metavar="N", help="Go back to state N first, and write its report."
)
def log_command(run: str, restore: int | None) -> None:
    """List the states of a run directory: what was added or deleted when, and the verdicts.

    A star marks the current state.
    """
    from ..inference import run_states
    from .model_reports import REPORT, write_report

    with errors_in_one_line():
        if restore is not None:
            run_states.restore(run, restore)
            if (Path(run) / REPORT).exists():  # that of another state
                write_report(run, None)
        print_line(str(run_states.history(run)))


@click.command(
    "forget",
    epilog=options.examples(
        "forget runs/a --where person=17",
        "forget runs/a --where year=2012 --where region=north",
        "forget runs/a --shard 0 --shard 1",
    ),
)
@click.argument("run", metavar="RUN")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Delete the rows that have this value. If it is repeated, all must hold.",
)
@click.option("--shard", "shards", multiple=True, type=int, metavar="N", help="Delete a shard.")
@run_model
@options.columns
@options.groups
@options.num_groups
@options.executor
def forget_command(
    run: str,
    conditions: Sequence[str],
    shards: Sequence[int],
    model: str | None,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    executor: str,
) -> None:
    """Delete rows from a run directory, with everything that was computed from them.

    The rows that are left of their shards are sampled anew. All earlier states are deleted: there
    is no going back. The exit code is 3 if the result is not good.
    """
    from ..inference.assessment import stored_diagnosis
    from .inputs import GroupNames
    from .update_job import RunInputs, forget_rows

    if bool(conditions) == bool(shards):
        raise click.UsageError("give either --where COLUMN=VALUE or --shard N.")
    with errors_in_one_line(RESUME_HINT):
        inputs = RunInputs(
            model, options.parse_columns(columns), GroupNames(groups, num_groups)
        ).completed(Path(run))
        tree = forget_rows(Path(run), inputs, conditions, shards, executor)
        conclude(stored_diagnosis(tree), f"The rows are deleted. The result is in {run}.")
