"""`vcmc loo`: its numbers, and its exit code, which says whether to rely on them."""

import numpy as np
import pytest
from click.testing import CliRunner

import vcmc
from vcmc.cli.commands import main
from vcmc.cli.inputs import load_model
from vcmc.results.draw_files import read_tree
from vcmc.results.tree import make_tree

MODELS = """
import jax.numpy as jnp
import numpyro, numpyro.distributions as dist
import vcmc

plain = vcmc.Model(
    space={"beta": vcmc.Real(2)},
    log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
    log_likelihood=lambda params, rows: dist.Normal(rows["x"] @ params["beta"], 1).log_prob(
        rows["y"]
    ),
)

def varying(county, y, *, num_counties):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", num_counties):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    numpyro.sample("obs", dist.Normal(alpha[county], 1.0), obs=y)
"""


def run_vcmc(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def write_regression(folder, outlier=0.0):
    """Write a file of models, one of rows, and one of draws from the exact posterior."""
    pytest.importorskip("h5netcdf")
    (folder / "models.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    y = x @ [1.0, -0.5] + generator.normal(size=300)
    x[17] += outlier
    y[17] += outlier
    np.savez(folder / "rows.npz", x=x, y=y)
    covariance = np.linalg.inv(x.T @ x + np.eye(2))
    draws = generator.multivariate_normal(covariance @ x.T @ y, covariance, size=(1, 1000))
    tree = make_tree({"posterior": {"beta": draws}}, {"num_shards": 2})
    tree.to_netcdf(folder / "tree.nc", engine="h5netcdf")
    return folder / "tree.nc", f"{folder}/models.py:plain", folder / "rows.npz"


def test_the_numbers_are_printed(tmp_path):
    result, model, data = write_regression(tmp_path)
    output = run_vcmc("loo", result, model, data)
    rows = np.load(data)
    beta = vcmc.posterior_draws(read_tree(result))["beta"]
    log_likelihoods = -0.5 * (rows["y"] - beta @ rows["x"].T) ** 2 - 0.5 * np.log(2 * np.pi)
    (elpd,) = [float(word) for word in output.split("elpd_loo ")[1].split()[:1]]
    # weights of so many rows and so few parameters hardly need to be smoothed
    expected = -np.log(np.mean(np.exp(-log_likelihoods), axis=0)).sum()
    assert elpd == pytest.approx(expected, abs=0.02)
    assert "Computed from 1000 posterior samples and 300 observations" in output
    fewer = run_vcmc("loo", result, model, data, "--num-draws", 500)
    assert "Computed from 500 posterior samples" in fewer


def test_unreliable_rows_are_named_and_the_exit_code_is_3(tmp_path):
    output = run_vcmc("loo", *write_regression(tmp_path, outlier=20.0), code=3)
    assert "1 of 300 rows (17 (k = " in output
    assert "Try a likelihood with heavier tails" in output


def test_errors_are_one_line(tmp_path):
    result, model, data = write_regression(tmp_path)
    np.savez(tmp_path / "other.npz", x=np.load(data)["x"])
    output = run_vcmc("loo", result, model, tmp_path / "other.npz", code=1)
    assert "Error: log_likelihood asks for 'y'; the rows are ['x']" in output
    assert "there is no run directory" in run_vcmc("loo", tmp_path / "a", model, data, code=1)


@pytest.mark.slow
def test_a_run_with_groups_in_a_file_leaves_out_groups(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    generator = np.random.default_rng(0)
    county = np.repeat([f"county {number:02d}" for number in range(30)], 8)
    y = np.repeat(1 + generator.normal(size=30), 8) + generator.normal(size=240)
    pd.DataFrame({"county": county, "y": y}).to_parquet(tmp_path / "houses.parquet")
    (tmp_path / "models.py").write_text(MODELS)
    model, data = f"{tmp_path}/models.py:varying", tmp_path / "houses.parquet"
    groups = ("--groups", "county", "--num-groups", "num_counties")
    run_vcmc("run", model, data, *groups, "--out", tmp_path / "run")
    output = run_vcmc("loo", tmp_path / "run", model, data, *groups)
    assert "and 30 observations" in output


def test_moment_matching_makes_an_outlier_reliable(tmp_path):
    arguments = write_regression(tmp_path, outlier=20.0)
    assert "moment_matching=True" in run_vcmc("loo", *arguments, code=3)
    assert "Pareto k is above" not in run_vcmc("loo", *arguments, "--moment-matching")


def test_models_are_compared(tmp_path):
    result, model, data = write_regression(tmp_path)
    with (tmp_path / "models.py").open("a") as file:
        file.write("""
wide = vcmc.Model(
    space={"beta": vcmc.Real(2)},
    log_prior=plain.log_prior,
    log_likelihood=lambda params, rows: dist.Normal(rows["x"] @ params["beta"], 3).log_prob(
        rows["y"]
    ),
)
""")
    wide = model.replace("plain", "wide")
    output = run_vcmc("loo", result, model, data, "--against", result, wide)
    tree, rows = read_tree(result), dict(np.load(data))
    elpds = {
        name: vcmc.loo(tree, load_model(location, rows), rows, progress=False)
        for name, location in (("plain", model), ("wide", wide))
    }
    table = vcmc.loo_compare(elpds)
    assert "elpd_diff" in output
    assert f"{table['elpd_diff']['wide']:.2f}" in output
    assert output.index(f"{result} plain 0 ") < output.index(f"{result} wide 1 ")
    output = run_vcmc("loo", result, model, data, "--against", result, model, code=1)
    assert "must name another result or model" in output
