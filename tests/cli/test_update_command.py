"""`vcmc update`, `vcmc log` and `vcmc forget`, from files to a run directory."""

import numpy as np
import pytest
from click.testing import CliRunner

import vcmc
from vcmc.cli.commands import main

MODELS = """
import numpyro, numpyro.distributions as dist

def regression(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)
"""


def run_vcmc(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def files(tmp_path):
    """A file of a model, and rows of three months."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (tmp_path / "models.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    for month, count in (("january", 900), ("february", 300), ("march", 200)):
        x = generator.normal(size=(count, 2))
        y = x @ [1.0, -0.5] + generator.normal(size=count)
        person = generator.integers(0, 9, count)
        frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y, "person": person})
        frame.to_parquet(tmp_path / f"{month}.parquet")
    return tmp_path


def exact(*frames):
    """Return the mean and sds of the posterior of some rows."""
    x = np.concatenate([frame[["a", "b"]].to_numpy() for frame in frames])
    y = np.concatenate([frame["y"].to_numpy() for frame in frames])
    covariance = np.linalg.inv(x.T @ x + np.eye(2))
    return covariance @ x.T @ y, np.sqrt(np.diag(covariance))


def assert_is_exact(run, *frames):
    draws = vcmc.load(run)["posterior"]["beta"].to_numpy().reshape(-1, 2)
    mean, sds = exact(*frames)
    assert np.abs((draws.mean(axis=0) - mean) / sds).max() < 1e-3
    assert np.abs(draws.std(axis=0) / sds - 1).max() < 1e-3


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
@pytest.mark.filterwarnings("ignore:the model does not read")
def test_a_run_is_updated_listed_restored_and_reduced(files):
    read = pytest.importorskip("pandas").read_parquet
    months = [read(files / f"{name}.parquet") for name in ("january", "february", "march")]
    run, columns = files / "run", ("--column", "x=a,b", "--column", "y=y", "--column", "p=person")
    location = f"{files / 'models.py'}:regression"
    run_vcmc("run", location, files / "january.parquet", "--out", run, "--num-shards", 3, *columns)
    output = run_vcmc("update", run, files / "february.parquet", "--num-shards", 2)
    assert "good" in output
    assert_is_exact(run, *months[:2])
    run_vcmc("update", run, files / "march.parquet", "--num-shards", 1)
    assert_is_exact(run, *months)
    table = run_vcmc("log", run, "--restore", 1)
    assert [line.split()[0] for line in table.splitlines()] == ["state", "0", "1", "2"]
    assert "february" in table
    assert "march" not in (run / "report.html").read_text()
    assert_is_exact(run, *months[:2])
    shards = np.flatnonzero(vcmc.load(run)["shard_batches"]["batch"].to_numpy() == 0)
    words = [word for shard in shards for word in ("--shard", shard)]
    assert "deleted" in run_vcmc("forget", run, *words)
    assert_is_exact(run, months[1])
    assert len(run_vcmc("log", run).splitlines()) == 2


def test_errors_are_one_line(files):
    vcmc.infer(
        vcmc.Model(
            {"a": vcmc.Real()},
            lambda _: 0.0,
            lambda params, rows: -((rows["y"] - params["a"]) ** 2),
        ),
        {"y": np.arange(50.0)},
        num_shards=1,
        store=files / "run",
        progress=False,
    )
    output = run_vcmc("update", files / "run", files / "february.parquet", code=1)
    assert "Pass --model FILE.PY:NAME" in output
    assert "--where COLUMN=VALUE" in run_vcmc("forget", files / "run", code=2)
    assert "no run directory" in run_vcmc("log", files / "missing", code=1)
    february = files / "february.parquet"
    assert "there is no run directory" in run_vcmc("update", files / "missing", february, code=1)
    assert "is no run directory" in run_vcmc("update", files, february, code=1)
    output = run_vcmc("forget", files / "missing", "--where", "a=1", code=1)
    assert "there is no run directory" in output
