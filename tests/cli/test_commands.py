"""The commands: their help, their output and their exit codes."""

import re

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import vcmc
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


def test_a_csv_file_with_text_ranges_of_columns_and_other_columns_is_run(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 4)), columns=["age", "income", "note", "y"])
    frame["region"] = rng.choice(["north", "south"], 600)
    frame["y"] += frame["age"] + (frame["region"] == "south")
    frame["note"] = ["", *["read"] * 599]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "model.py").write_text(
        "import numpyro\nimport numpyro.distributions as dist\n"
        "def model(x, region, y):\n"
        "    beta = numpyro.sample('beta', dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))\n"
        "    with numpyro.plate('region', 2):\n"
        "        mean = numpyro.sample('mean', dist.Normal(0, 1))\n"
        "    numpyro.sample('y', dist.Normal(mean[region] + x @ beta, 1), obs=y)\n"
    )
    arguments = [f"{tmp_path}/model.py:model", f"{tmp_path}/rows.csv"]
    columns = ["--column", "x=age:income"]  # region and y are named like the model's arrays
    out = ["--num-shards", "2", "--num-draws", "500", "--out", f"{tmp_path}/run"]
    result = CliRunner().invoke(main, ["run", *arguments, *columns, *out])
    assert result.exit_code == 0, result.output
    for label in ("beta[age]", "beta[income]", "mean[north]", "mean[south]"):
        assert f"{label} " in result.output
    assert "beta[0]" not in result.output
    # the posterior is Gaussian, in closed form
    x = np.column_stack([frame[["age", "income"]], pd.get_dummies(frame["region"])]).astype(float)
    precision = x.T @ x + np.eye(4)
    mean = np.linalg.solve(precision, x.T @ frame["y"].to_numpy())
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    posterior = vcmc.load(tmp_path / "run")["posterior"].mean(["chain", "draw"])
    found = np.concatenate([posterior["beta"].to_numpy(), posterior["mean"].to_numpy()])
    assert (np.abs(found - mean) / sd < 4 / np.sqrt(500)).all()
    again = ["diagnose", f"{tmp_path}/run", "--model", arguments[0], "--data", arguments[1]]
    result = CliRunner().invoke(main, [*again, *columns])
    assert result.exit_code == 0, result.output
    assert "mean[south]" in result.output


def test_shells_get_a_script_for_tab_completion():
    environment = {"_VCMC_COMPLETE": "zsh_source"}
    result = CliRunner().invoke(main, [], prog_name="vcmc", env=environment)
    assert "#compdef vcmc" in result.output


@pytest.mark.parametrize("command", [[], *([name] for name in main.commands)], ids=str)
def test_no_help_text_has_a_literal_escape(command):
    output = CliRunner().invoke(main, [*command, "--help"]).output
    assert "\b" not in output
    assert "\\b" not in output
