"""Report pages from the command line: their title, and sections on the model."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from vcmc.cli.commands import main
from vcmc.cli.model_reports import write_report
from vcmc.results.tree import make_tree

MODELS = """
import numpyro, numpyro.distributions as dist
import jax.numpy as jnp
import vcmc

def normal(y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu, 1).expand([len(y)]), obs=y)

silent = vcmc.Model(
    {"mu": vcmc.Real()},
    lambda params: -0.5 * params["mu"] ** 2,
    lambda params, rows: dist.Normal(params["mu"], 1.0).log_prob(rows["y"]),
)
"""


def run_vcmc(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("h5netcdf")
    (tmp_path / "models.py").write_text(MODELS)
    y = np.random.default_rng(0).normal(size=100)
    np.savez(tmp_path / "rows.npz", y=y)
    mu = y.sum() / 101 + np.random.default_rng(1).normal(size=(1, 400)) / np.sqrt(101)
    tree = make_tree({"posterior": {"mu": mu}}, {"num_shards": 2})
    tree.to_netcdf(tmp_path / "wells.nc", engine="h5netcdf")
    return tmp_path


def test_the_title_is_given_or_the_name_of_the_result(folder):
    page = write_report(str(folder / "wells.nc"), None)
    assert "<h1>wells.nc</h1>" in page.read_text()
    assert data_of(page)["checks"] == []
    assert data_of(page)["loo"] is None
    run_vcmc("report", folder / "wells.nc", "--title", "Wells & <arsenic>")
    assert "<h1>Wells &amp; &lt;arsenic&gt;</h1>" in page.read_text()


def test_a_model_and_its_rows_add_sections(folder):
    data = ("--data", folder / "rows.npz", "--out", folder / "page.html")
    run_vcmc("report", folder / "wells.nc", "--model", f"{folder}/models.py:normal", *data)
    contents = data_of(folder / "page.html")
    assert [check["response"] for check in contents["checks"]] == ["y"]
    assert contents["loo"]["numRows"] == 100
    run_vcmc("report", folder / "wells.nc", "--model", f"{folder}/models.py:silent", *data)
    contents = data_of(folder / "page.html")
    assert contents["checks"] == []  # it does not say how rows are drawn
    assert contents["loo"]["numRows"] == 100
    usage = run_vcmc("report", folder / "wells.nc", "--data", folder / "rows.npz", code=2)
    assert "--model and --data must be given together" in usage


@pytest.mark.slow
def test_a_run_has_the_title_that_is_given(folder):
    model = f"{folder}/models.py:silent"
    words = ("--num-shards", 2, "--out", folder / "run", "--title", "A normal mean")
    run_vcmc("run", model, folder / "rows.npz", *words)
    assert "<h1>A normal mean</h1>" in (folder / "run" / "report.html").read_text()
