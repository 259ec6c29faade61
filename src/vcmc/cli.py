"""The command line: `vcmc demo`, `vcmc reproduce`."""

from collections.abc import Callable
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


_seed = click.option("--seed", default=0, show_default=True, help="Seed of the data and of the draws.")


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
    run_demo(out, seed, _console())


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
@_out("reproduced", "Folder for figures, numbers and settings; what is half done is kept in `work` inside.")
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
    from .experiments import EXPERIMENTS, Job  # here, not above: `vcmc --help` should not wait for it

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
        raise click.UsageError(f"there is no experiment {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}.")
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    job = Job(size, out, seed, easiest)
    try:
        for name in chosen:
            for path in EXPERIMENTS[name].run(job, console):
                console.print(f"wrote {path}", highlight=False)
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on where it was.")
        raise SystemExit(130) from None
    except OSError as error:
        raise click.ClickException(str(error)) from error


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = 120
    return console
