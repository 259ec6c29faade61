"""The command `vcmc check`."""

import numpy as np
import pytest
from click.testing import CliRunner

from vcmc.cli.commands import main
from vcmc.results.tree import make_tree

MODELS = """
import numpyro, numpyro.distributions as dist

def poisson(size, count=None):
    rate = numpyro.sample("rate", dist.Exponential(1.0))
    numpyro.sample("obs", dist.Poisson(rate * size), obs=count)
"""


def run_vcmc(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def write_counts(folder, share_of_zeros=0.0):
    """Write a model, counts with too many zeros, and draws of the exact posterior."""
    pytest.importorskip("h5netcdf")
    (folder / "models.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    size = 1 + generator.random(400)
    count = generator.poisson(2 * size) * (generator.random(400) >= share_of_zeros)
    np.savez(folder / "rows.npz", size=size, count=count.astype(float))
    rate = generator.gamma(1 + count.sum(), 1 / (1 + size.sum()), size=(1, 500))
    tree = make_tree({"posterior": {"rate": rate}}, {"num_shards": 2})
    tree.to_netcdf(folder / "tree.nc", engine="h5netcdf")
    return folder / "tree.nc", f"{folder}/models.py:poisson", folder / "rows.npz"


def test_the_table_is_printed(tmp_path):
    files = write_counts(tmp_path)
    output = run_vcmc("check", *files, "--num-draws", 100)
    assert "The data are like replicated data (8 statistics of 'obs', 100 replicates)." in output
    (mean,) = [line.split() for line in output.splitlines() if line.startswith("mean")]
    assert float(mean[1]) == pytest.approx(np.load(files[2])["count"].mean(), abs=0.005)
    other = run_vcmc("check", *files, "--num-draws", 100, "--seed", 1)
    assert other != output


def test_the_exit_code_is_3_if_the_data_are_unlike_replicated_data(tmp_path):
    output = run_vcmc("check", *write_counts(tmp_path, share_of_zeros=0.3), code=3)
    assert "The data are unlike replicated data in" in output
    assert "share of zeros" in output.splitlines()[-1]


def test_columns_can_be_named_and_errors_are_one_line(tmp_path):
    files = write_counts(tmp_path)
    named = ("--response", "obs", "--observed", "count")
    assert "mean" in run_vcmc("check", *files, *named, "--num-draws", 50)
    output = run_vcmc("check", *files, "--observed", "y", code=1)
    assert "Error: observed must be the column of the rows with the data's values" in output
    assert "got 'z'" in run_vcmc("check", *files, "--by", "z", code=1)
