"""The command line: `vcmc demo`."""

from pathlib import Path

import click
from rich.console import Console

from .demo import run_demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vcmc")
def main() -> None:
    """Bayesian inference on more data than one chain can chew: shard, sample, combine."""


@main.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="Folder for the picture.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the data and of the draws.")
def demo(out: Path, seed: int) -> None:
    r"""Run a probit regression in 20 shards, beside full-data NUTS.

    Prints a table of means, sds and errors, and saves a picture.

    \b
    Example:
      vcmc demo --out pictures
    """
    console = Console()
    if not console.is_terminal:
        console.width = 120
    run_demo(out, seed, console)
