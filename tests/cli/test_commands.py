"""The commands: their help, their output and their exit codes."""

import re

import pytest
from click.testing import CliRunner

from vcmc.cli import demo
from vcmc.cli.commands import main
from vcmc.paper import EXPERIMENTS, Job


@pytest.mark.slow
def test_demo_prints_a_table_and_saves_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "NUM_ROWS", 2000)
    monkeypatch.setattr(demo, "NUM_SHARDS", 4)
    result = CliRunner().invoke(
        main, ["demo", "--out", str(tmp_path / "pictures")], catch_exceptions=False
    )
    assert result.exit_code == 0
    for word in (
        "full-data NUTS",
        "consensus",
        "the paper's",
        "x4 (rare)",
        "largest error",
        "seconds",
        "The result is",
    ):
        assert word in result.output
    table = result.output.split("The error estimate of vcmc")[0]
    assert len(re.findall(r"-?\d+\.\d{3} ± \d+\.\d{3}", table)) == 5 * 4
    assert (tmp_path / "pictures" / "demo.png").stat().st_size > 20_000


def test_help_has_an_example_on_a_line_of_its_own():
    result = CliRunner().invoke(main, ["demo", "--help"])
    assert result.exit_code == 0
    assert "Examples:\n    vcmc demo --out pictures\n" in result.output


def test_experiments_are_listed():
    result = CliRunner().invoke(main, ["reproduce", "--list"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == [
        "probit-5",
        "probit-300",
        "probit-300-partial",
        "wishart-5",
        "wishart-100",
        "mixture-1",
        "mixture-1-apart",
        "mixture-2",
        "timing",
        "speedup",
    ]


def test_an_experiment_is_run(tmp_path, monkeypatch):
    jobs = []

    class Nothing:
        def run(self, job, console):
            jobs.append(job)
            return [job.out / "nothing.csv"]

    monkeypatch.setitem(EXPERIMENTS, "probit-5", Nothing())
    arguments = [
        "reproduce",
        "probit-5",
        "--size",
        "paper",
        "--out",
        str(tmp_path),
        "--easiest",
        "0.7",
    ]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "nothing.csv" in result.output
    assert jobs == [Job("paper", tmp_path, 0, 0.7)]


def test_an_interrupted_experiment_says_how_to_resume(tmp_path, monkeypatch):
    class Interrupted:
        def run(self, job, console):
            raise KeyboardInterrupt

    monkeypatch.setitem(EXPERIMENTS, "probit-5", Interrupted())
    result = CliRunner().invoke(main, ["reproduce", "probit-5", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "the same command resumes the run" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name an experiment"),
        (["probit-6"], "no experiment 'probit-6'; the experiments are probit-5, "),
        (["probit-5", "--easiest", "0"], "0<x<=1"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(arguments, message):
    result = CliRunner().invoke(main, ["reproduce", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(
        main, ["reproduce", "probit-5", "--out", str(tmp_path / "file" / "inside")]
    )
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in result.output


def test_an_unknown_command_is_an_error():
    result = CliRunner().invoke(main, ["dmeo"])
    assert result.exit_code == 2
    assert "No such command 'dmeo'" in result.output


@pytest.mark.parametrize(
    "command", ["run", "combine", "diagnose", "loo", "check", "refine", "report"]
)
def test_every_command_has_examples_in_its_help(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"Examples:\n    vcmc {command} " in result.output
    assert "\b" not in result.output
    assert "\\b" not in result.output
