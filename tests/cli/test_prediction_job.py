"""Predictions of a run directory, whose rows say what the model looks like."""

import numpy as np
import pytest
from click.testing import CliRunner

from vcmc.cli.commands import main
from vcmc.cli.inputs import GroupNames
from vcmc.cli.prediction_job import predict_rows

MODEL = """
import numpyro, numpyro.distributions as dist

def varying(county, y=None, *, num_counties):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", num_counties):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    numpyro.sample("obs", dist.Normal(alpha[county], 0.5), obs=y)
"""


@pytest.mark.slow
def test_a_run_with_groups_predicts_known_and_new_groups(tmp_path):
    """New rows lack y: shapes are learnt from the rows in the run directory."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    generator = np.random.default_rng(0)
    means = np.linspace(-2, 4, 30)
    labels = np.array([f"county {number:02d}" for number in range(30)])
    county = np.repeat(np.arange(30), 8)
    y = means[county] + 0.5 * generator.normal(size=240)
    pd.DataFrame({"county": labels[county], "y": y}).to_parquet(tmp_path / "old.parquet")
    new = pd.DataFrame({"county": ["county 29", "nowhere", "county 00"]})
    new.to_parquet(tmp_path / "new.parquet")
    (tmp_path / "models.py").write_text(MODEL)
    location, run = f"{tmp_path}/models.py:varying", tmp_path / "run"
    groups = ["--groups", "county", "--num-groups", "num_counties"]
    command = ["run", location, str(tmp_path / "old.parquet"), *groups, "--out", str(run)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code in (0, 3), result.output
    out = predict_rows(
        str(run),
        location,
        str(tmp_path / "new.parquet"),
        tmp_path / "out.parquet",
        None,
        GroupNames("county", "num_counties"),
    )
    table = pd.read_parquet(out)
    by_county = [y[county == 29].mean(), y.mean(), y[county == 0].mean()]
    # shrinkage moves the outermost means by about (3 / 1.8²) * 0.5² / 8 = 0.03
    np.testing.assert_allclose(table["mean"], by_county, atol=0.15)
    known = np.sqrt(0.25 + 0.25 / 8)
    np.testing.assert_allclose(table["sd"][[0, 2]], known, rtol=0.05)
    assert 1.4 < table["sd"][1] < 2.4  # the sd of the counties' means is 1.8


REGIONS = """
import numpyro, numpyro.distributions as dist

def incomes(region, income=None):
    with numpyro.plate("region", 3):
        mean = numpyro.sample("mean", dist.Normal(0, 10))
    numpyro.sample("income", dist.Normal(mean[region], 1), obs=income)
"""


def test_a_run_with_categories_predicts_labels_of_new_rows(tmp_path):
    """The rows in the run directory are numbers of levels; new rows lack the first level."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    generator = np.random.default_rng(0)
    region = np.tile(["north", "south", "west"], 60)
    income = np.tile([0.0, 10.0, 20.0], 60) + generator.normal(size=180)
    pd.DataFrame({"region": region, "income": income}).to_csv(tmp_path / "old.csv", index=False)
    pd.DataFrame({"region": ["west", "south"]}).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "models.py").write_text(REGIONS)
    location, run = f"{tmp_path}/models.py:incomes", str(tmp_path / "run")
    result = CliRunner().invoke(main, ["run", location, str(tmp_path / "old.csv"), "--out", run])
    assert result.exit_code == 0, result.output
    out = tmp_path / "out.parquet"
    command = ["predict", run, location, str(tmp_path / "new.csv"), "--out", str(out)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(pd.read_parquet(out)["mean"], [20, 10], atol=0.5)
    pd.DataFrame({"region": ["east"]}).to_csv(tmp_path / "new.csv", index=False)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert "must hold levels that are known, 'north', 'south', 'west'; got 'east'" in result.output
