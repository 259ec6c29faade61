"""`vcmc evidence`: its number, and its exit code."""

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from vcmc.cli.commands import main
from vcmc.results.tree import make_tree

MODELS = """
import numpyro, numpyro.distributions as dist

def regression(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 1), obs=y)
"""


def run_vcmc(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def write_regression(folder, shift=0.0):
    """Write a model, rows, and draws from the posterior, or away from it; return log p(y)."""
    pytest.importorskip("h5netcdf")
    (folder / "models.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2))
    y = x @ [1.0, -0.5] + generator.normal(size=200)
    np.savez(folder / "rows.npz", x=x, y=y)
    covariance = np.linalg.inv(x.T @ x + np.eye(2))
    draws = generator.multivariate_normal(covariance @ x.T @ y, covariance, size=(1, 1000))
    tree = make_tree({"posterior": {"beta": shift + draws}}, {"num_shards": 2})
    tree.to_netcdf(folder / "tree.nc", engine="h5netcdf")
    return stats.multivariate_normal(np.zeros(200), np.eye(200) + x @ x.T).logpdf(y)


def command(folder):
    return "evidence", folder / "tree.nc", f"{folder}/models.py:regression", folder / "rows.npz"


def test_the_evidence_is_that_of_the_closed_form(tmp_path):
    exact = write_regression(tmp_path)
    output = run_vcmc(*command(tmp_path))
    assert output.startswith("log marginal likelihood ")
    assert abs(float(output.split()[3]) - exact) < 0.05
    assert output.endswith("good.")


def test_a_poor_estimate_has_its_exit_code(tmp_path):
    write_regression(tmp_path, shift=3.0)
    assert ": poor." in run_vcmc(*command(tmp_path), code=3)


def test_errors_are_one_line(tmp_path):
    write_regression(tmp_path)
    np.savez(tmp_path / "rows.npz", x=np.ones((200, 2)))
    output = run_vcmc(*command(tmp_path), code=1)
    assert output.startswith("Error:")
    assert "Traceback" not in output
