"""The command `vcmc predict`: predictions for new rows, from a file to a file."""

from collections.abc import Sequence
from pathlib import Path

import click

from . import options
from .console import errors_in_one_line, print_line

RESUME_HINT = "the same command goes on after the last complete part."


@click.command(
    "predict",
    short_help="Predict new rows, from a file to a file.",
    epilog=options.examples(
        "predict runs/a model.py:model new.parquet --out predictions.parquet",
        "predict runs/a model.py:model new.parquet --name y --num-draws 500",
        "predict runs/a model.py:model new.parquet --column x=age,income",
        "predict runs/b radon.py:radon houses.parquet --groups county --num-groups num_counties",
    ),
)
@click.argument("result", metavar="RUN")
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data", metavar="ROWS")
@options.out_file("predictions.parquet", "Parquet file to write.")
@click.option("--name", metavar="SITE", help="What to predict, if the model observes several.")
@click.option(
    "--fitted-to",
    "fitted",
    metavar="PATH",
    help="The rows that the model was fitted to, from which a NumPyro or PyMC model learns its "
    "shapes; needed if the new rows lack the column that is predicted and the run directory has "
    "no rows.",
)
@click.option("--num-draws", type=int, metavar="N", help="Posterior draws to use; all if left out.")
@options.columns
@options.groups
@options.num_groups
@options.seed
@options.executor
def predict_command(
    result: str,
    model: str,
    data: str,
    out: Path,
    name: str | None,
    fitted: str | None,
    num_draws: int | None,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    seed: int,
    executor: str,
) -> None:
    """Predict new rows: draw their values from the model at draws of the posterior.

    RUN is a run directory or an ArviZ file, FILE.PY:NAME its model, and ROWS the new rows: a
    Parquet or CSV file or a folder of them, a Zarr store, or a NumPy file (.npz). They need not
    have the column that is predicted.

    Writes the mean, sd and 5 %, 50 % and 95 % quantiles of every row, in the order of the rows. The
    same command resumes one that was interrupted.
    """
    from .inputs import GroupNames
    from .prediction_job import predict_rows

    with errors_in_one_line(RESUME_HINT):
        path = predict_rows(
            result,
            model,
            data,
            out,
            options.parse_columns(columns),
            GroupNames(groups, num_groups),
            fitted=fitted,
            name=name,
            num_draws=num_draws,
            seed=seed,
            executor=executor,
        )
        print_line(f"wrote {path}")
