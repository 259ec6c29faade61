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


GROUPED = """
import jax, numpyro.distributions as dist
import vcmc

def simulate(key, params, local, rows):
    return {"y": local["alpha"] + jax.random.normal(key, rows["x"].shape)}

model = vcmc.Model(
    space={"mu": vcmc.Real()},
    local_space={"alpha": vcmc.Real()},
    log_prior=lambda params: dist.Normal(0, 1).log_prob(params["mu"]),
    log_local_prior=lambda params, local, _: dist.Normal(params["mu"], 1).log_prob(local["alpha"]),
    log_likelihood=lambda _, local, rows: dist.Normal(local["alpha"], 1).log_prob(rows["y"]),
    groups="county",
    simulate=simulate,
)
"""


@pytest.mark.filterwarnings("default:the model does not read")
def test_rows_in_files_are_checked_by_a_column_that_the_model_does_not_read(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    files = write_counts(tmp_path)
    arrays = dict(np.load(files[2]))
    region = np.where(np.arange(400) % 3, "south", "north")
    path = tmp_path / "rows.parquet"
    pandas.DataFrame(arrays | {"region": region}).to_parquet(path)
    words = ("check", *files[:2], path, "--by", "region", "--num-draws", "20")
    output = CliRunner().invoke(main, [str(word) for word in words]).output
    for name in ("north", "south"):
        mean = arrays["count"][region == name].mean()
        lines = [line for line in output.splitlines() if line.startswith(f"mean[{name}]")]
        assert lines, output
        assert float(lines[0].split()[1]) == pytest.approx(mean, abs=0.02)


def test_rows_of_groups_in_files_are_checked(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (tmp_path / "models.py").write_text(GROUPED)
    generator = np.random.default_rng(0)
    county = np.arange(120) % 4
    rows = {"county": county, "x": np.zeros(120), "y": county + generator.normal(size=120)}
    pandas.DataFrame(rows).to_parquet(tmp_path / "rows.parquet")
    alpha = np.arange(4) + 0.1 * generator.normal(size=(1, 50, 4))
    groups = {
        "posterior": {"mu": generator.normal(size=(1, 50)), "alpha": alpha},
        "dims": {"alpha": np.array(["county"])},
        "coords": {"county": np.arange(4)},
    }
    tree = make_tree(groups, {"num_shards": 2})
    pytest.importorskip("h5netcdf")
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    files = (tmp_path / "tree.nc", f"{tmp_path}/models.py:model", tmp_path / "rows.parquet")
    words = ("check", *files, "--by", "county", "--num-draws", "20")
    output = CliRunner().invoke(main, [str(word) for word in words]).output
    for number in range(4):
        mean = rows["y"][county == number].mean()
        (line,) = [line for line in output.splitlines() if line.startswith(f"mean[{number}]")]
        assert float(line.split()[1]) == pytest.approx(mean, abs=0.02)
        # replicates are around the group's own value
        assert float(line.split()[2]) == pytest.approx(number, abs=0.2)
