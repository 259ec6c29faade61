"""The jobs of the command line, from files to files: output, exit codes, one-line errors."""

import os
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import vcmc
from vcmc.cli.commands import main
from vcmc.results.draw_files import read_tree
from vcmc.results.tree import make_tree

MODELS = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import vcmc
from numpyro.distributions import Normal


def numpyro_model(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 1), obs=y)


plain = vcmc.Model(
    space={"beta": vcmc.Real(2)},
    log_prior=lambda params: jnp.sum(Normal(0, 1).log_prob(params["beta"])),
    log_likelihood=lambda params, rows: Normal(rows["x"] @ params["beta"], 1).log_prob(rows["y"]),
)
number = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a file of models and files of rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("job")
    (folder / "models.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(900, 2))
    y = x @ [1.0, -0.5] + generator.normal(size=900)
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "y": y}), folder / "rows.parquet")
    np.savez(folder / "rows.npz", x=x, y=y)
    return folder


def run_vcmc(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def exact(folder):
    rows = np.load(folder / "rows.npz")
    covariance = np.linalg.inv(rows["x"].T @ rows["x"] + np.eye(2))
    return covariance @ rows["x"].T @ rows["y"], np.sqrt(np.diag(covariance))


COLUMNS = ("--column", "x=a,b", "--column", "y=y")
FOUR_SHARDS = ("--num-shards", 4)


@pytest.mark.parametrize(("data", "columns"), [("w.parquet", COLUMNS), ("w.npz", ())])
def test_rows_have_the_weights_of_a_column(data, columns, folder, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = np.load(folder / "rows.npz")
    (x, y), w = (rows["x"], rows["y"]), np.random.default_rng(1).integers(0, 4, size=900)
    np.savez(tmp_path / "w.npz", x=x, y=y, w=w)
    pq.write_table(pa.table({"a": x[:, 0], "b": x[:, 1], "y": y, "w": w}), tmp_path / "w.parquet")
    model, out = f"{folder}/models.py:numpyro_model", tmp_path / "run"
    words = ("run", model, tmp_path / data, *FOUR_SHARDS, "--weights", "w", "--out", out, *columns)
    assert "The result is good." in run_vcmc(*words)
    covariance = np.linalg.inv(x.T @ (w[:, None] * x) + np.eye(2))
    draws = vcmc.load(out)["posterior"]["beta"].to_numpy().reshape(-1, 2)
    errors = draws.mean(axis=0) - covariance @ x.T @ (w * y)
    # means are fitted to full-data scores, which are linear
    np.testing.assert_allclose(errors / np.sqrt(np.diag(covariance)), np.zeros(2), atol=1e-3)
    again = ("--model", model, "--data", tmp_path / data, *columns)
    assert "The result is good." in run_vcmc("diagnose", out, *again)
    assert "The result is good." in run_vcmc("refine", out, *again, "--out", tmp_path / "a.nc")


@pytest.mark.parametrize(
    ("name", "data", "count", "more"),
    [
        pytest.param("numpyro_model", "rows.parquet", FOUR_SHARDS, COLUMNS, marks=pytest.mark.slow),
        ("plain", "rows.npz", (), ("--executor", "processes:1")),  # the number of shards is chosen
    ],
)
def test_a_run_goes_from_files_to_a_result(name, data, count, more, folder, tmp_path):
    out = tmp_path / "run"
    words = ("run", f"{folder}/models.py:{name}", folder / data, *count, "--out", out, *more)
    output = run_vcmc(*words)
    assert "The result is good." in output
    assert f"The result is in {out}" in output
    draws = vcmc.load(out)["posterior"]["beta"]
    mean, sd = exact(folder)
    assert (
        np.abs(draws.mean(("chain", "draw")) - mean) / sd < 0.15
    ).all()  # 4.5 standard errors of 1000 draws
    diagnosis = run_vcmc("diagnose", out)
    assert "The result is good." in diagnosis
    assert re.search(r"^beta\[[1b]\] +-0\.\d+ +0\.0\d\d", diagnosis, re.MULTILINE)  # mean and sd
    page = (out / "report.html").read_text()
    assert f"The report is in {out / 'report.html'}" in output
    assert "The result is good." in page
    typed = shlex.split((out / "command.txt").read_text())
    assert typed[:4] == ["vcmc", *map(str, words[:3])]
    assert "--seed" in typed
    (out / "report.html").unlink()
    assert str(out / "report.html") in run_vcmc("report", out)
    assert (out / "report.html").read_text() == page
    if name == "numpyro_model":
        assert draws["x_column"].values.tolist() == ["a", "b"]
        again = ("--model", f"{folder}/models.py:{name}", "--data", folder / data, *more)
        assert "The result is good." in run_vcmc("diagnose", out, *again)
        output = run_vcmc("refine", out, *again, "--out", tmp_path / "exact.nc")
        assert "The result is good." in output
        assert "The result is good." in run_vcmc("diagnose", tmp_path / "exact.nc")


def test_a_result_that_is_not_good_has_an_exit_code_of_its_own(folder, tmp_path):
    words = ("run", f"{folder}/models.py:plain", folder / "rows.npz", "--num-shards", 4)
    output = run_vcmc(*words, "--shard-draws", 5, "--out", tmp_path / "run", code=3)
    assert "The result is doubtful." in output
    assert "DoubtfulWarning" not in output


def test_more_draws_extend_a_run(folder, tmp_path):
    out = tmp_path / "run"
    words = ("run", f"{folder}/models.py:plain", folder / "rows.npz", "--num-shards", 4)
    first = CliRunner().invoke(main, [*map(str, words), "--shard-draws", "150", "--out", str(out)])
    assert first.exit_code in (0, 3)
    blocks = {path: path.read_bytes() for path in out.glob("draws/*/0000[01].npz")}
    assert len(blocks) == 8  # of 128 steps of warm-up and 150 draws, in whole blocks
    run_vcmc(*words, "--shard-draws", 400, "--out", out)
    assert vcmc.load(out)["subposterior"].sizes["draw"] == 400
    assert all(path.read_bytes() == content for path, content in blocks.items())
    assert "--shard-draws 400" in (out / "command.txt").read_text()
    refused = run_vcmc(*words, "--shard-draws", 100, "--out", out, code=1)
    assert "shard_draws: the run has 400, given 100 (a run can be extended, not" in refused
    assert "--shard-draws 400" in (out / "command.txt").read_text()


def test_files_of_draws_are_combined(tmp_path):
    generator = np.random.default_rng(0)
    files = [tmp_path / f"{shard}.npz" for shard in range(3)]
    for file in files:
        np.savez(file, beta=generator.normal(size=(500, 2)))
    said = run_vcmc("combine", *files, "--out", tmp_path / "posterior.nc")
    assert "The quality of the result is unknown" in said
    import xarray as xr

    with xr.open_datatree(tmp_path / "posterior.nc") as tree:
        assert tree["posterior"]["beta"].shape == (4, 1250, 2)
    run_vcmc("report", tmp_path / "posterior.nc")
    assert "The quality of the result is unknown" in (tmp_path / "posterior.html").read_text()
    assert "page.html" in run_vcmc(
        "report", tmp_path / "posterior.nc", "--out", tmp_path / "page.html"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "{0}/models.py:plain", "nowhere.parquet"), "there is no nowhere.parquet"),
        (("run", "{0}/models.py:plain", "nowhere.npz"), "there is no file nowhere.npz"),
        (("run", "{0}/models.py:other", "{0}/rows.npz"), "there is no 'other' in"),
        (("run", "{0}/models.py:number", "{0}/rows.npz"), "must be a vcmc.Model, a NumPyro model"),
        (("run", "{0}/nowhere.py:plain", "{0}/rows.npz"), "there is no Python file"),
        (("run", "{0}/models.py", "{0}/rows.npz"), "the model must be FILE.PY:NAME"),
        (
            ("run", "{0}/models.py:plain", "{0}/rows.parquet", "--column", "x=a,z"),
            "columns names ['z']",
        ),
        (("run", "{0}/models.py:plain", "{0}/rows.parquet"), "log_likelihood asks for 'x'"),
        (
            ("run", "{0}/models.py:plain", "{0}/rows.npz", "--executor", "mpi"),
            "--executor must be local",
        ),
        (
            ("run", "{0}/models.py:plain", "{0}/rows.npz", "--out", "/proc/run"),
            "store must be a folder",
        ),
        (("combine", "nowhere.csv"), "there is no file nowhere.csv"),
        (("combine", "{0}/rows.npz", "--out", "/nowhere/a.nc"), "there is no folder /nowhere"),
        (("combine", "{0}/rows.npz", "--out", "a.txt"), "--out must be an ArviZ file"),
        (("combine", "{0}/rows.npz", "--out", "/proc/a.nc"), "/proc/a.nc cannot be written"),
        (("report", "nowhere"), "there is no run directory or file nowhere"),
        (("report", "{0}"), "is not a run directory"),
        (("demo", "--out", "/proc/pictures"), "/proc/pictures"),
        (("reproduce", "probit-5", "--out", "/proc/figures"), "/proc/figures"),
        (("diagnose", "nowhere"), "there is no run directory or file nowhere"),
        (("diagnose", "{0}"), "is not a run directory"),
        (
            ("refine", "nowhere", "--model", "a.py:b", "--data", "c.npz"),
            "there is no run directory or file",
        ),
    ],
)
def test_user_errors_are_reported_in_one_line(words, message, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    filled = [word.format(folder) for word in words]
    if words[0] == "run":
        filled += ["--num-shards", "3"]
    output = run_vcmc(*filled, code=1).strip().splitlines()
    errors = [
        line for line in output if not re.search(r"…$|: done in \S+ s$", line)
    ]  # besides lines of progress
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    assert message in errors[0]


def test_options_that_belong_together_are_required_together(tmp_path):
    output = run_vcmc("diagnose", "a", "--model", "b", code=2)
    assert "--model and --data must be given together" in output
    assert "refine needs --model and --data" in run_vcmc("refine", "a", code=2)
    words = ("run", "a.py:b", "c.npz", "--num-shards", 3, "--column", "x")
    assert "--column must be NAME=COLUMN" in run_vcmc(*words, code=2)


@pytest.fixture
def damaged(folder, tmp_path):
    """Truncated files of rows, draws and results."""
    for name in ("rows.npz", "rows.parquet"):
        content = (folder / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
    whole = tmp_path / "whole.nc"
    make_tree({"posterior": {"a": np.zeros((1, 5000))}}, {}).to_netcdf(whole, engine="h5netcdf")
    (tmp_path / "half.nc").write_bytes(whole.read_bytes()[:20_000])
    (tmp_path / "empty.nc").write_bytes(b"")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", "{0}/models.py:plain", "{1}/rows.npz", "--num-shards", "3"), "rows.npz"),
        (("run", "{0}/models.py:plain", "{1}/rows.parquet", "--num-shards", "3"), "rows.parquet"),
        (("combine", "{1}/rows.npz"), "rows.npz"),
        (("combine", "{1}/binary.csv"), "binary.csv"),
        (("combine", "{1}/half.nc"), "half.nc"),
        (("combine", "{1}/empty.nc"), "empty.nc"),
        (("report", "{1}/half.nc"), "half.nc"),
        (("diagnose", "{1}/empty.nc"), "empty.nc"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(words, name, folder, damaged, monkeypatch):
    monkeypatch.chdir(damaged)
    output = run_vcmc(*(word.format(folder, damaged) for word in words), code=1).splitlines()
    assert len(output) == 1
    assert re.match(rf"Error: .*{name} ", output[0])


def test_files_that_vcmc_did_not_write_are_not_overwritten(tmp_path):
    for seed, name in enumerate(("a.npz", "b.npz")):
        np.savez(tmp_path / name, beta=np.random.default_rng(seed).normal(size=(500, 2)))
    out = tmp_path / "posterior.nc"
    words = ("combine", tmp_path / "a.npz", tmp_path / "b.npz", "--out", out)
    make_tree({"posterior": {"a": np.zeros((1, 50))}}, {}).to_netcdf(out, engine="h5netcdf")
    run_vcmc(*words)  # a result of vcmc
    assert list(read_tree(out)["posterior"].data_vars) == ["beta"]
    out.write_text("a file of the user's")
    assert "exists and is not a result of vcmc" in run_vcmc(*words, code=1)
    assert out.read_text() == "a file of the user's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz", "posterior.nc"]


def test_a_result_is_not_overwritten_by_its_refinement(folder, tmp_path):
    out = tmp_path / "posterior.nc"
    tree = make_tree({"posterior": {"beta": np.zeros((1, 50, 2))}}, {})
    tree.to_netcdf(out, engine="h5netcdf")
    before = out.read_bytes()
    model = ("--model", folder / "models.py:plain", "--data", folder / "rows.npz")
    output = run_vcmc("refine", out, *model, "--out", out, code=1)
    assert "--out must be another file than the input" in output
    assert out.read_bytes() == before


@pytest.mark.slow
def test_a_terminated_run_can_be_resumed(folder, tmp_path):
    """The signal is sent when rows have been split and the shards are sampled."""
    words = ["run", f"{folder}/models.py:plain", f"{folder}/rows.parquet", "--num-shards", "2"]
    words += ["--out", str(tmp_path / "run"), "--shard-draws", "100000000", *COLUMNS]
    (tmp_path / "temporary").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", "from vcmc.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
        text=True,
    ) as run:
        assert run.stderr is not None
        assert any(line.startswith("sample") for line in run.stderr)
        run.terminate()
        output, _ = run.communicate(timeout=120)
    assert run.returncode == 128 + signal.SIGTERM
    assert output == "terminated; the same command resumes the run.\n"
    assert (tmp_path / "run" / "rows" / "rows.json").exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def write_chains(folder, num_shards=8, num_chains=2, name="shard{0}_{1}.npz"):
    """Write draws of the subposteriors of a normal model with unknown scale."""
    generator = np.random.default_rng(0)
    files = []
    for shard in range(num_shards):
        centre = generator.normal(0, 0.02)
        for chain in range(num_chains):
            path = folder / name.format(shard, chain)
            path.parent.mkdir(exist_ok=True)
            np.savez(path, sigma=np.exp(centre + 0.1 * generator.normal(size=500)))
            files.append(path)
    return files


def posterior_of(path):
    import xarray as xr

    with xr.open_datatree(path) as tree:
        return tree.load()


def test_chains_in_files_are_not_counted_as_shards(tmp_path):
    files = write_chains(tmp_path)
    out = ("--out", tmp_path / "posterior.nc")
    output = run_vcmc("combine", *files, *out, code=1)
    assert "every file must be a shard of its own" in output
    assert not (tmp_path / "posterior.nc").exists()
    space = ("--space", "sigma=positive")
    pairs = [f"{files[index]},{files[index + 1]}" for index in range(0, 16, 2)]
    labelled = [f"shard-{index // 2}:{file}" for index, file in enumerate(files)]
    write_chains(tmp_path, name="folder{0}/{1}.npz")
    folders = [tmp_path / f"folder{shard}" for shard in range(8)]
    draws = []
    for words in (pairs, labelled, folders):
        run_vcmc("combine", *words, *space, *out)
        tree = posterior_of(tmp_path / "posterior.nc")
        assert tree["subposterior"].sizes["shard"] == 8
        assert tree["subposterior"].sizes["chain"] == 2
        draws.append(tree["posterior"]["sigma"].to_numpy())
    for other in draws[1:]:
        np.testing.assert_array_equal(other, draws[0])
    run_vcmc("combine", *files, "--one-file-per-shard", *space, *out)
    tree = posterior_of(tmp_path / "posterior.nc")
    assert tree["subposterior"].sizes["shard"] == 16
    ratio = tree["posterior"]["sigma"].std() / draws[0].std()  # what is wrong about it
    assert abs(ratio - np.sqrt(0.5)) < 0.05


def test_draws_without_a_space_are_pointed_out_on_the_command_line(tmp_path):
    files = write_chains(tmp_path, 4, 1)
    out = ("--out", tmp_path / "posterior.nc")
    output = " ".join(run_vcmc("combine", *files, *out).split())
    assert "ll draws of sigma are positive" in output
    assert "--space sigma=positive" in output
    output = run_vcmc("combine", *files, "--space", "sigma=positive", *out)
    assert "draws of sigma are" not in output
    on_log_scale = posterior_of(tmp_path / "posterior.nc")["posterior"]["sigma"]
    run_vcmc("combine", *files, "--space", "sigma=real", *out)
    as_numbers = posterior_of(tmp_path / "posterior.nc")["posterior"]["sigma"]
    assert float(np.abs(as_numbers / on_log_scale - 1).max()) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("data", "more"), [("rows.npz", ()), ("rows.parquet", COLUMNS)])
def test_combined_files_are_assessed_with_a_model(data, more, folder, tmp_path):
    rows = np.load(folder / "rows.npz")
    partition = vcmc.split({"x": rows["x"], "y": rows["y"]}, 3)
    generator = np.random.default_rng(0)
    files = [tmp_path / f"shard{shard}.npz" for shard in range(3)]
    for file, members in zip(files, partition.members, strict=True):
        x, y = rows["x"][members], rows["y"][members]
        covariance = np.linalg.inv(x.T @ x + np.eye(2) / 3)
        np.savez(file, beta=generator.multivariate_normal(covariance @ x.T @ y, covariance, 1000))
    words = ("--model", f"{folder}/models.py:plain", "--data", folder / data, *more)
    out = ("--out", tmp_path / "posterior.nc")
    assert "The result is good." in run_vcmc("combine", *files, *words, *out)
    tree = posterior_of(tmp_path / "posterior.nc")
    mean, sd = exact(folder)
    off = tree["posterior"]["beta"].mean(("chain", "draw")).to_numpy() - mean
    assert (np.abs(off) / sd < 0.1).all()
    assert tree.attrs["verdict"] == "good"
    few = [tmp_path / f"few{shard}.npz" for shard in range(3)]
    for shard, file in enumerate(few):
        np.savez(file, beta=np.load(files[shard])["beta"][:4])
    output = run_vcmc("combine", *few, *words, *out, code=1)
    assert "--no-chains" in output
    run_vcmc("combine", *few, *words, *out, "--no-chains", code=3)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--space", "sigma"), 2, "--space must be NAME=KIND"),
        (("--space", "tau=positive"), 1, "--space names ['tau'], but the draws are of ['sigma']"),
        (("--space", "sigma=round"), 1, "got the kind 'round'"),
        (("--space", "sigma=interval:1"), 1, "must be two numbers, e.g. interval:-1,1"),
        (("--space", "sigma=correlation"), 1, "is for matrices; got draws of shape ()"),
        (("--model", "a.py:b"), 2, "--model and --data must be given together"),
        (
            ("--model", "a.py:b", "--data", "c", "--space", "a=real"),
            2,
            "--space is for draws without",
        ),
        ((",a.csv",), 1, "DRAWS must be files, folders, or chains of a shard"),
    ],
)
def test_wrong_options_of_combine_are_refused(words, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write_chains(tmp_path, 2, 1)
    output = run_vcmc("combine", *files, *words, code=code)
    assert message in " ".join(output.replace("│", " ").split())


GROUPED = """
import numpyro, numpyro.distributions as dist

def radon(county, y, *, num_counties):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", num_counties):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    numpyro.sample("obs", dist.Normal(alpha[county], 1.0), obs=y)
"""


@pytest.mark.slow
def test_a_hierarchical_model_runs_on_labels_in_a_file(tmp_path):
    import pandas as pd

    generator = np.random.default_rng(0)
    county = np.repeat([f"county {number:02d}" for number in range(30)], 8)
    y = np.repeat(1 + generator.normal(size=30), 8) + generator.normal(size=240)
    pd.DataFrame({"county": county, "y": y}).to_parquet(tmp_path / "houses.parquet")
    (tmp_path / "radon.py").write_text(GROUPED)
    model = f"{tmp_path}/radon.py:radon"
    groups = ("--groups", "county", "--num-groups", "num_counties")
    words = ("run", model, tmp_path / "houses.parquet", *groups, "--out", tmp_path / "run")
    output = run_vcmc(*words)
    assert "The result is good." in output
    assert "30 groups (county), of 8 to 8 rows." in output
    assert "alpha: means from " in output
    assert "alpha[" not in output
    tree = vcmc.load(tmp_path / "run")
    assert tree["posterior"]["alpha"]["county"].to_numpy()[3] == "county 03"
    data = ("--model", model, "--data", tmp_path / "houses.parquet", *groups)
    assert "The result is good." in run_vcmc("diagnose", tmp_path / "run", *data)
    words = (*words[:-1], tmp_path / "files", "--locals", "file")
    assert "The result is good." in run_vcmc(*words)
    draws = vcmc.load_locals(tmp_path / "files", "county 03")["alpha"]
    assert (draws == tree["posterior"]["alpha"].sel(county=["county 03"])).all()
    assert (tmp_path / "files" / "rows" / "groups.npz").exists()
