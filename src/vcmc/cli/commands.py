"""The command line. What is wrong with what a user says is one line, without a traceback.

Exit codes: 0, all is well; 1, an error; 2, a command that cannot be understood; 3, a result that is not good; 130, interrupted.
"""

import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from .demo import run_demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vcmc")
def main() -> None:
    """Bayesian inference on more data than one chain can chew: shard, sample, combine."""


def _out(default: str, what: str) -> Callable[[Any], Any]:
    """The option that says where to write."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, default=Path(default), show_default=True, help=what)


_seed = click.option(
    "--seed", default=0, show_default=True, help="Seed of the data and of the draws."
)


@main.command()
@_out("demo", "Folder for the picture.")
@_seed
def demo(out: Path, seed: int) -> None:
    r"""Run a probit regression in 20 shards, beside full-data NUTS.

    Prints a table of means, sds and errors, and saves a picture.

    \b
    Example:
      vcmc demo --out pictures
    """
    with _one_line():
        out.mkdir(parents=True, exist_ok=True)  # what cannot be written to is told at once
        run_demo(out, seed, _console())


NOT_GOOD, INTERRUPTED = 3, 130  # exit codes

_columns = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=COLUMN[,COLUMN...]",
    help="An array of the model made of columns of the data; without any, every column is an array by itself.",
)
_model = click.option("--model", metavar="FILE.PY:NAME", help="The model, in a Python file.")
_data = click.option("--data", metavar="PATH", help="All rows.")
_file = click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("posterior.nc"),
    show_default=True,
    help="The ArviZ file to write.",
)


@main.command()
@click.argument("model", metavar="FILE.PY:NAME")
@click.argument("data")
@click.option("--num-shards", type=click.IntRange(1), required=True, help="Number of shards.")
@_out("run", "The run directory. The same command goes on where a stopped run was.")
@click.option("--num-draws", default=1000, show_default=True, help="Draws of every shard.")
@_seed
@_columns
@click.option(
    "--executor",
    default="local",
    show_default=True,
    help="Where shards are sampled: local, processes:N, dask:ADDRESS, ray or ray:ADDRESS.",
)
@click.option(
    "--refine", "refined", is_flag=True, help="Turn the draws into exact ones in the end."
)
def run(
    model: str,
    data: str,
    num_shards: int,
    out: Path,
    num_draws: int,
    seed: int,
    columns: Sequence[str],
    executor: str,
    refined: bool,
) -> None:
    r"""Sample a model on rows that are dealt into shards.

    FILE.PY:NAME is a vcmc.Model or a NumPyro model in a Python file; DATA a Parquet file, a folder of them, a Zarr store or a NumPy file (.npz).
    Exits with 3 if the result is not good.

    \b
    Examples:
      vcmc run model.py:model rows.parquet --num-shards 20 --out runs/a
      vcmc run model.py:model rows.parquet --num-shards 64 --column x=age,income --column y=bought --executor processes:8
    """
    from ..inference.assessment import stored_diagnosis
    from . import jobs

    with _one_line("the same command goes on where it was."):
        tree = jobs.run(
            model,
            data,
            out,
            num_shards=num_shards,
            num_draws=num_draws,
            seed=seed,
            executor=executor,
            columns=_chosen(columns),
            refined=refined,
            command=_typed(),
        )
        page = jobs.reported(str(out), None)
        _tell(
            stored_diagnosis(tree),
            f"The result is in {out}: vcmc.load({str(out)!r}). The report is in {page}.",
        )


@main.command()
@click.argument("draws", nargs=-1, required=True)
@_file
@_seed
def combine(draws: tuple[str, ...], out: Path, seed: int) -> None:
    r"""Combine draws of shards, one file for each, by consensus averages.

    DRAWS are CmdStan's CSV files, ArviZ files (.nc) or NumPy files (.npz).

    \b
    Example:
      vcmc combine shard-0.csv shard-1.csv shard-2.csv --out posterior.nc
    """
    from . import jobs

    with _one_line():
        tree = jobs.combined(draws, out, seed)
        _console().print(tree.attrs["verdict_text"], highlight=False)
        _say(f"The result is in {out}.")


@main.command()
@click.argument("result")
@_model
@_data
@_columns
def diagnose(result: str, model: str | None, data: str | None, columns: Sequence[str]) -> None:
    r"""Say how good a result is: a run directory, or an ArviZ file.

    What was found when it was made is told at once; with a model and data it is found out anew. Exits with 3 if the result is not good.

    \b
    Examples:
      vcmc diagnose runs/a
      vcmc diagnose posterior.nc --model model.py:model --data rows.parquet
    """
    from . import jobs

    if (model is None) != (data is None):
        raise click.UsageError("--model and --data go together.")
    with _one_line():
        _tell(jobs.judged(result, model, data, _chosen(columns)))


@main.command()
@click.argument("result")
@_model
@_data
@_columns
@_file
@_seed
def refine(
    result: str, model: str | None, data: str | None, columns: Sequence[str], out: Path, seed: int
) -> None:
    r"""Turn the draws of a result into exact ones, by evaluating all rows more often.

    \b
    Example:
      vcmc refine runs/a --model model.py:model --data rows.parquet --out exact.nc
    """
    from ..inference.assessment import stored_diagnosis
    from . import jobs

    if model is None or data is None:
        raise click.UsageError("refining needs --model and --data.")
    with _one_line():
        tree = jobs.refined(result, model, data, out, _chosen(columns), seed)
        _tell(stored_diagnosis(tree), f"The result is in {out}.")


@main.command()
@click.argument("result")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="The page to write; by default report.html in the run directory, or beside the file.",
)
def report(result: str, out: Path | None) -> None:
    r"""Write a page about a result, a run directory or an ArviZ file: one HTML file, which needs no network.

    \b
    Examples:
      vcmc report runs/a
      vcmc report posterior.nc --out page.html
    """
    from . import jobs

    with _one_line():
        _say(f"wrote {jobs.reported(result, out)}")


def _typed() -> str:
    """The command that is being run, with all its options, as a shell takes it."""
    context = click.get_current_context()
    words = ["vcmc", str(context.info_name)]
    for each in context.command.params:
        value = context.params[str(each.name)]
        if isinstance(each, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(each.opts[0])
        elif isinstance(value, tuple):
            words += [word for one in value for word in (each.opts[0], str(one))]
        elif value is not None and value is not False:
            words += [each.opts[0], str(value)]
    return shlex.join(words)


def _chosen(columns: Sequence[str]) -> dict[str, str | list[str]] | None:
    """Arrays by name, from what was said as NAME=COLUMN or NAME=COLUMN,COLUMN."""
    found: dict[str, str | list[str]] = {}
    for each in columns:
        name, equals, rest = each.partition("=")
        if not (name and equals and rest):
            raise click.UsageError(f"--column is NAME=COLUMN or NAME=COLUMN,COLUMN; got {each!r}.")
        found[name] = rest.split(",") if "," in rest else rest
    return found or None


def _tell(diagnosis: Any, where: str = "") -> None:
    """Print what a diagnosis says, and exit accordingly."""
    _console().print(str(diagnosis), highlight=False)
    if where:
        _say(where)
    if diagnosis.verdict not in ("good", "unknown"):
        raise SystemExit(NOT_GOOD)


def _say(text: str) -> None:
    """Print a line as it is, so that paths in it can be copied."""
    _console().print(text, highlight=False, soft_wrap=True)


@contextmanager
def _one_line(after_interrupt: str = "") -> Iterator[None]:
    """Tell errors in a line, and warnings not at all, as what is doubtful is in the verdict."""
    from ..errors import DoubtfulWarning

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulWarning)
            yield
    except KeyboardInterrupt:
        _console().print(f"interrupted; {after_interrupt}".rstrip("; "))
        raise SystemExit(INTERRUPTED) from None
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error


@main.command()
@click.argument("names", nargs=-1)
@click.option("--list", "show_list", is_flag=True, help="List the experiments, and do nothing.")
@click.option(
    "--size",
    type=click.Choice(["small", "paper"]),
    default="small",
    show_default=True,
    help="A size for two cores and a few minutes, or the paper's own.",
)
@_out(
    "reproduced",
    "Folder for figures, numbers and settings; what is half done is kept in `work` inside.",
)
@_seed
@click.option(
    "--easiest",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the test functions that count, those with the smallest errors; the paper has 0.7 for mixture-2.",
)
def reproduce(
    names: tuple[str, ...], show_list: bool, size: str, out: Path, seed: int, easiest: float
) -> None:
    r"""Run experiments of the paper again, with our methods beside the paper's.

    NAMES are experiments, or `all`. Each writes a figure (PNG and SVG), its numbers (CSV) and its settings (JSON). Interrupted with
    Ctrl-C, it goes on where it was when it is run again.

    \b
    Examples:
      vcmc reproduce --list
      vcmc reproduce probit-5
      vcmc reproduce all --size small
    """
    from ..paper import EXPERIMENTS, Job  # here, not above: `vcmc --help` should not wait for it

    console = _console()
    if show_list:
        for experiment in EXPERIMENTS.values():
            console.print(f"{experiment.name:20s} {experiment.title}", highlight=False)
        return
    if not names:
        raise click.UsageError(
            f"name an experiment, or all of them with `all`; there are {', '.join(EXPERIMENTS)}."
        )
    if unknown := [name for name in names if name not in (*EXPERIMENTS, "all")]:
        raise click.UsageError(
            f"there is no experiment {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}."
        )
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    job = Job(size, out, seed, easiest)
    try:
        for name in chosen:
            for path in EXPERIMENTS[name].run(job, console):
                _say(f"wrote {path}")
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on where it was.")
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        raise click.ClickException(str(error)) from error


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = 120
    return console
