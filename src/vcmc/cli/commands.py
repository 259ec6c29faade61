"""The commands. User errors are reported in one line, without a traceback.

Exit codes: 0 success; 1 an error; 2 wrong usage; 3 the result is not good; 130 interrupted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .check_command import check_command
from .console import (
    RESUME_HINT,
    conclude,
    errors_in_one_line,
    new_console,
    print_line,
    print_text,
)
from .evidence_command import evidence_command
from .loo_command import loo_command
from .predict_command import predict_command
from .update_command import forget_command, log_command, update_command

if TYPE_CHECKING:
    from ..inference.local_tasks import LocalsMode

# Modules that only some commands need are imported by these, so that `vcmc --help` is fast.


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=options.examples(
        "demo", "run model.py:model rows.parquet --out runs/a", "COMMAND --help"
    ),
)
@click.version_option(package_name="vcmc")
def main() -> None:
    """Bayesian inference on more data than one MCMC chain can handle.

    vcmc splits the rows into shards, samples the shards in parallel, combines their draws into one
    posterior, and estimates how accurate it is.
    """


main.add_command(loo_command)
main.add_command(evidence_command)
main.add_command(predict_command)
main.add_command(check_command)
main.add_command(update_command)
main.add_command(log_command)
main.add_command(forget_command)


@main.command(epilog=options.examples("demo --out pictures"))
@options.out_folder("demo", "Folder for the figure.")
@options.seed
def demo(out: Path, seed: int) -> None:
    """Compare vcmc with full-data NUTS on a small probit regression.

    Samples 20 shards and the whole data set, combines the shards in three ways, prints means, sds
    and errors, and saves a figure. Takes about a minute.
    """
    from .demo import run_demo

    with errors_in_one_line():
        out.mkdir(parents=True, exist_ok=True)  # fails before the sampling, not after it
        run_demo(out, seed, new_console())


@main.command(
    epilog=options.examples(
        "run model.py:model rows.parquet --out runs/a",
        "run model.py:model rows.parquet --num-shards 64 --executor processes:8",
        "run model.py:model rows.npz --num-shards 8 --column x=age,income --column y=bought",
        "run radon.py:radon houses.parquet --groups county --num-groups num_counties",
    )
)
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data")
@click.option(
    "--num-shards",
    type=click.IntRange(1),
    metavar="N",
    help="Number of shards; chosen by vcmc if left out.",
)
@options.out_folder(
    "run", "Run directory. The same command resumes an interrupted run; more draws extend a run."
)
@click.option("--num-draws", type=int, metavar="N", help="Draws of the posterior.  [default: 5000]")
@click.option(
    "--shard-draws", type=int, metavar="N", help="Draws of every shard; chosen if left out."
)
@click.option(
    "--error",
    type=float,
    metavar="SD",
    help="Sample and refine until no mean or quantile is off by more, in posterior sds.",
)
@options.seed
@options.columns
@options.groups
@options.num_groups
@options.local_parameters
@options.weights
@options.executor
@click.option(
    "--refine",
    "refined",
    is_flag=True,
    help="Refine the combined draws to draws of the full-data posterior.",
)
@options.title
def run(
    model: str,
    data: str,
    num_shards: int | None,
    out: Path,
    num_draws: int | None,
    shard_draws: int | None,
    error: float | None,
    seed: int,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    locals_mode: "LocalsMode | None",
    weights: str | None,
    executor: str,
    refined: bool,
    title: str | None,
) -> None:
    """Sample a model on the rows of a file, in shards.

    FILE.PY:NAME is a vcmc.Model, a NumPyro model or a PyMC model in a Python file. DATA is a
    Parquet or CSV file or a folder of them, a Zarr store, or a NumPy file (.npz).

    Writes the draws, the result and a report to the run directory, and prints the estimates and how
    accurate they are. The exit code is 3 if the result is not good.
    """
    from ..inference.assessment import stored_diagnosis
    from ..inference.estimates import summary
    from ..results.group_summaries import describe_groups
    from . import jobs
    from .inputs import GroupNames
    from .model_reports import write_report

    with errors_in_one_line(RESUME_HINT):
        tree = jobs.run_model(
            model,
            data,
            out,
            num_shards=num_shards,
            num_draws=num_draws,
            shard_draws=shard_draws,
            error=error,
            seed=seed,
            executor=executor,
            columns=options.parse_columns(columns),
            names=GroupNames(groups, num_groups),
            locals_mode=locals_mode,
            weights=weights,
            refined=refined,
            command=options.typed_command(),
        )
        page = write_report(str(out), None, title)
        conclude(
            stored_diagnosis(tree),
            f"The result is in {out}: vcmc.load({str(out)!r}). The report is in {page}.",
            describe_groups(tree),
            summary(tree).table(with_errors=False),
        )


@main.command(
    epilog=options.examples(
        "combine shard-0.csv shard-1.csv shard-2.csv --space sigma=positive",
        "combine 0_1.csv,0_2.csv 1_1.csv,1_2.csv --out posterior.nc",
        "combine shard-*/ --model model.py:model --data rows.parquet",
    )
)
@click.argument("draws", nargs=-1, required=True)
@click.option(
    "--one-file-per-shard",
    is_flag=True,
    help="Say that every file is a shard, though names or headers look like those of chains.",
)
@click.option(
    "--chains/--no-chains",
    default=None,
    help="Whether arrays in NumPy files are (chain, draw, …) or (draw, …), if their shapes do not "
    "tell.",
)
@options.spaces
@options.model
@options.data
@options.columns
@options.out_file("posterior.nc", options.RESULT_HELP)
@options.seed
def combine(
    draws: tuple[str, ...],
    one_file_per_shard: bool,
    chains: bool | None,
    spaces: Sequence[str],
    model: str | None,
    data: str | None,
    columns: Sequence[str],
    out: Path,
    seed: int,
) -> None:
    """Combine draws of shards from files.

    Each of DRAWS is a shard: a file, a folder with a file for each chain, or the files of its
    chains with commas in between, e.g. a_1.csv,a_2.csv or shard-1:a_1.csv,a_2.csv. Files are
    CmdStan CSV files, ArviZ files (.nc) or NumPy files (.npz).

    Without a model, draws are combined by consensus Monte Carlo, and --space names the spaces of
    constrained parameters. With --model and --data the combination is optimized and its accuracy
    estimated; the exit code is 3 if the result is not good.
    """
    from ..inference.assessment import stored_diagnosis
    from . import jobs

    _check_together(model, data)
    if model is not None and spaces:
        raise click.UsageError("--space is for draws without a --model, which has spaces.")
    with errors_in_one_line():
        tree = jobs.combine_files(
            draws,
            out,
            seed,
            one_file_per_shard=one_file_per_shard,
            chains=chains,
            spaces=options.parse_space_kinds(spaces),
            model=model,
            data=data,
            columns=options.parse_columns(columns),
        )
        message = f"The result is in {out}."
        if model is not None:
            conclude(stored_diagnosis(tree), message)
            return
        print_text(tree.attrs["verdict_text"])
        print_line(message)


def _check_together(model: str | None, data: str | None) -> None:
    if (model is None) != (data is None):
        raise click.UsageError("--model and --data must be given together, or neither of them.")


@main.command(
    epilog=options.examples(
        "diagnose runs/a",
        "diagnose posterior.nc --model model.py:model --data rows.parquet",
    )
)
@click.argument("result")
@options.model
@options.data
@options.columns
@options.groups
@options.num_groups
def diagnose(
    result: str,
    model: str | None,
    data: str | None,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
) -> None:
    """Print the estimates of a result, and how accurate they are.

    RESULT is a run directory or an ArviZ file. By default the stored diagnosis is printed; with
    --model and --data a new one is computed. The exit code is 3 if the result is not good.
    """
    from ..inference.estimates import summary
    from . import jobs
    from .inputs import GroupNames

    _check_together(model, data)
    with errors_in_one_line():
        names = GroupNames(groups, num_groups)
        tree, diagnosis = jobs.diagnose_result(
            result, model, data, options.parse_columns(columns), names
        )
        conclude(diagnosis, estimates=summary(tree).table(with_errors=False))


@main.command(
    epilog=options.examples(
        "refine runs/a --model model.py:model --data rows.parquet --out exact.nc"
    )
)
@click.argument("result")
@options.model
@options.data
@options.columns
@options.groups
@options.num_groups
@options.out_file("posterior.nc", options.RESULT_HELP)
@options.seed
def refine(
    result: str,
    model: str | None,
    data: str | None,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
    out: Path,
    seed: int,
) -> None:
    """Refine a result to draws of the full-data posterior.

    RESULT is a run directory or an ArviZ file. The combined draws are corrected by evaluating the
    model on all rows; afterwards they are exact up to Monte Carlo error. The exit code is 3 if the
    refined result is not good.
    """
    from ..inference.assessment import stored_diagnosis
    from ..results.group_summaries import describe_groups
    from . import jobs
    from .inputs import GroupNames

    if model is None or data is None:
        raise click.UsageError(
            "refine needs --model and --data, e.g. --model model.py:model --data rows.parquet."
        )
    with errors_in_one_line():
        names = GroupNames(groups, num_groups)
        tree = jobs.refine_result(
            result, model, data, out, options.parse_columns(columns), seed, names
        )
        conclude(stored_diagnosis(tree), f"The result is in {out}.", describe_groups(tree))


@main.command(
    epilog=options.examples(
        "report runs/a",
        "report posterior.nc --out page.html --title Wells",
        "report runs/a --model model.py:model --data rows.parquet",
    )
)
@click.argument("result")
@options.out_file(
    None, "HTML file to write; by default report.html in the run directory, or beside the file."
)
@options.title
@options.model
@options.data
@options.columns
@options.groups
@options.num_groups
def report(
    result: str,
    out: Path | None,
    title: str | None,
    model: str | None,
    data: str | None,
    columns: Sequence[str],
    groups: str | None,
    num_groups: str | None,
) -> None:
    """Write a report about a result.

    RESULT is a run directory or an ArviZ file. The report is one HTML file, which needs no network.
    With --model and --data it has a posterior check and cross-validation with the worst rows.
    """
    from .inputs import GroupNames
    from .model_reports import ModelFiles, write_report

    _check_together(model, data)
    with errors_in_one_line():
        files = None
        if model is not None and data is not None:
            names = GroupNames(groups, num_groups)
            files = ModelFiles(model, data, options.parse_columns(columns), names)
        print_line(f"wrote {write_report(result, out, title, files)}")


@main.command(
    epilog=options.examples(
        "reproduce --list",
        "reproduce probit-5",
        "reproduce all --size small",
    )
)
@click.argument("names", nargs=-1)
@click.option("--list", "show_list", is_flag=True, help="List the experiments and exit.")
@click.option(
    "--size",
    type=click.Choice(["small", "paper"]),
    default="small",
    show_default=True,
    help="small: minutes on two cores; paper: the sizes of the paper, hours.",
)
@options.out_folder(
    "reproduced", "Folder for figures, numbers and settings; intermediate files are in work/."
)
@options.seed
@click.option(
    "--easiest",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    default=1.0,
    show_default=True,
    help="Share of the test functions to count, those with the smallest errors; the paper uses "
    "0.7 for mixture-2.",
)
def reproduce(
    names: tuple[str, ...], show_list: bool, size: str, out: Path, seed: int, easiest: float
) -> None:
    """Repeat the experiments of the paper.

    NAMES are experiments, or `all`. vcmc's own methods run beside the paper's. Each experiment
    writes a figure (PNG and SVG), its numbers (CSV) and its settings (JSON). The same command
    resumes an interrupted experiment.
    """
    from ..paper import EXPERIMENTS, Job

    if show_list:
        for experiment in EXPERIMENTS.values():
            print_line(f"{experiment.name:20s} {experiment.title}")
        return
    listed = ", ".join(EXPERIMENTS)
    if not names:
        raise click.UsageError(f"name an experiment, or `all`; the experiments are {listed}.")
    if unknown := [name for name in names if name not in (*EXPERIMENTS, "all")]:
        raise click.UsageError(
            f"there is no experiment {unknown[0]!r}; the experiments are {listed}."
        )
    job = Job(size, out, seed, easiest)
    with errors_in_one_line(RESUME_HINT):
        for name in EXPERIMENTS if "all" in names else dict.fromkeys(names):
            for path in EXPERIMENTS[name].run(job, new_console()):
                print_line(f"wrote {path}")
