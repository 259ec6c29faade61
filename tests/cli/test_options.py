"""Options that several commands share."""

import shlex

import click
import pytest
from click.testing import CliRunner

from vcmc.cli import options


def test_columns_are_parsed():
    assert options.parse_columns(["x=a,b", "y=c"]) == {"x": ["a", "b"], "y": "c"}
    assert options.parse_columns([]) is None


@pytest.mark.parametrize("value", ["x", "x=", "=a"])
def test_bad_columns_are_refused(value):
    with pytest.raises(click.UsageError, match="--column must be NAME=COLUMN"):
        options.parse_columns([value])


def test_the_typed_command_can_be_repeated():
    commands = []

    @click.command()
    @click.argument("path")
    @options.out_folder("run", "Folder.")
    @options.seed
    @options.columns
    @click.option("--refine", is_flag=True)
    @options.model
    def job(**values):
        commands.append((options.typed_command(), values))

    words = ["a b.npz", "--column", "x=a,b", "--column", "y=c", "--refine", "--seed", "3"]
    assert CliRunner().invoke(job, words).exit_code == 0
    typed = shlex.split(commands[0][0])
    assert typed[:2] == ["vcmc", "job"]
    assert "--model" not in typed
    assert CliRunner().invoke(job, typed[2:]).exit_code == 0
    assert commands[0] == commands[1]


def test_examples_keep_their_lines():
    command = click.Command("job", epilog=options.examples("a " + 90 * "x", "b"))
    output = CliRunner().invoke(command, ["--help"]).output
    assert output.endswith(f"  Examples:\n    vcmc a {90 * 'x'}\n    vcmc b\n")
