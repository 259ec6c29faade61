"""Options that several commands share, and their values as Python objects."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Any], Any]


def out_folder(default: str, text: str) -> Decorator:
    """Return the option --out for a folder."""
    folder = click.Path(file_okay=False, path_type=Path)
    return click.option("--out", type=folder, default=Path(default), show_default=True, help=text)


def out_file(default: str | None, text: str) -> Decorator:
    """Return the option --out for a file."""
    return click.option(
        "--out",
        type=click.Path(dir_okay=False, path_type=Path),
        default=default,
        show_default=default is not None,
        help=text,
    )


def examples(*commands: str) -> str:
    """Return an epilog of the help text that lists commands, each on its own line."""
    lines = "".join(f"  vcmc {command}\n" for command in commands)
    return f"\b\nExamples:\n{lines}"  # after \b, click leaves line breaks alone


RESULT_HELP = "ArviZ file to write."

seed = click.option("--seed", default=0, show_default=True, help="Random seed.")
model = click.option(
    "--model", metavar="FILE.PY:NAME", help="Model NAME in a Python file, e.g. model.py:model."
)
data = click.option(
    "--data",
    metavar="PATH",
    help="All rows: a Parquet or CSV file or a folder of them, a Zarr store, or a NumPy file "
    "(.npz).",
)
columns = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=COLUMN[,COLUMN...]",
    help="Build the model's array NAME from these columns of the data: names, ranges in the order "
    "of the file (age:income) and patterns (x9*). Repeat it for every such array. A column that is "
    "named like another array of the model is that array.",
)


groups = click.option(
    "--groups",
    metavar="COLUMN",
    help="For a hierarchical model: the column with the group of every row. Latent sites with one "
    "value per group are integrated out, and drawn afterwards.",
)
num_groups = click.option(
    "--num-groups",
    metavar="NAME",
    help="The argument of a NumPyro model with the number of groups.",
)

local_parameters = click.option(
    "--locals",
    "locals_mode",
    type=click.Choice(["draws", "summary", "file", "none"]),
    help="How to report the parameters of groups: all draws in the result; their mean, sd and "
    "quantiles; these, and all draws in Parquet files of the run directory; or not at all. By "
    "default draws, unless they take more than 256 MB.",
)


executor = click.option(
    "--executor",
    default="local",
    show_default=True,
    help="Where to work on the shards: local (threads), local:THREADS, processes, processes:N, "
    "dask:ADDRESS, ray or ray:ADDRESS.",
)


weights = click.option(
    "--weights",
    metavar="COLUMN",
    help="The column of the data with the weights of rows, which multiply their log likelihoods.",
)


title = click.option(
    "--title", metavar="TEXT", help="Title of the report; by default the name of the result."
)


spaces = click.option(
    "--space",
    "spaces",
    multiple=True,
    metavar="NAME=KIND",
    help="The space of parameter NAME: real, positive, interval (0 to 1), interval:LOW,HIGH, "
    "simplex, ordered, positive-definite or correlation. Repeat it for every parameter.",
)


def parse_space_kinds(values: Sequence[str]) -> dict[str, str]:
    """Return kinds of spaces by parameter, from values NAME=KIND."""
    parsed = {}
    for value in values:
        name, _, kind = value.partition("=")
        if not (name and kind):
            raise click.UsageError(
                f"--space must be NAME=KIND, e.g. --space sigma=positive; got {value!r}."
            )
        parsed[name] = kind
    return parsed


def parse_columns(values: Sequence[str]) -> dict[str, str | list[str]] | None:
    """Return columns by name of the array, from values NAME=COLUMN or NAME=COLUMN,COLUMN."""
    parsed: dict[str, str | list[str]] = {}
    for value in values:
        name, _, listed = value.partition("=")
        if not (name and listed):
            raise click.UsageError(
                "--column must be NAME=COLUMN or NAME=COLUMN,COLUMN,..., "
                f"e.g. --column x=age,income; got {value!r}."
            )
        parsed[name] = listed.split(",") if "," in listed else listed
    return parsed or None


def typed_command() -> str:
    """Return the current command with the values of all its options, quoted for a shell."""
    context = click.get_current_context()
    words = ["vcmc", str(context.info_name)]
    for parameter in context.command.params:
        value = context.params[str(parameter.name)]
        option = parameter.opts[0]
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(option)
        elif isinstance(value, tuple):
            words += [word for item in value for word in (option, str(item))]
        elif value is not None and value is not False:
            words += [option, str(value)]
    return shlex.join(words)
