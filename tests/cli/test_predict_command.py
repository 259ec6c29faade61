"""`vcmc predict`: its help, its file, and errors in one line."""

import numpy as np
import pytest
from click.testing import CliRunner

import vcmc
from vcmc.cli.commands import main
from vcmc.cli.inputs import load_model
from vcmc.results.draw_files import read_tree
from vcmc.results.tree import make_tree

MODELS = """
import jax, jax.numpy as jnp
import numpyro, numpyro.distributions as dist
import vcmc

plain = vcmc.Model(
    space={"beta": vcmc.Real(2)},
    log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
    log_likelihood=lambda params, rows: dist.Normal(rows["x"] @ params["beta"], 1).log_prob(
        rows["y"]
    ),
    simulate=lambda key, params, rows: {
        "y": rows["x"] @ params["beta"] + jax.random.normal(key, rows["x"].shape[:1])
    },
)

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
    """A file of models, draws, old rows with y, and new rows without it."""
    pytest.importorskip("h5netcdf")
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    (tmp_path / "models.py").write_text(MODELS)
    generator = np.random.default_rng(0)
    draws = [1.0, -0.5] + 0.1 * generator.normal(size=(1, 400, 2))
    tree = make_tree({"posterior": {"beta": draws}}, {"num_shards": 1})
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    for name, count in (("old", 50), ("new", 30)):
        frame = pd.DataFrame(generator.normal(size=(count, 3)), columns=["a", "b", "bought"])
        frame = frame if name == "old" else frame[["a", "b"]]
        frame.to_parquet(tmp_path / f"{name}.parquet")
    return tmp_path


def read(path):
    table = pytest.importorskip("pyarrow.parquet").read_table(path)
    return {name: np.array(values) for name, values in table.to_pydict().items()}


def test_examples_stand_on_lines_of_their_own():
    lines = [line.strip() for line in run_vcmc("predict", "--help").splitlines()]
    assert "vcmc predict runs/a model.py:model new.parquet --out predictions.parquet" in lines
    assert not any("\b" in line for line in lines)


def test_the_file_holds_what_predict_returns(files):
    out, model = files / "out.parquet", f"{files}/models.py:plain"
    columns = ("--column", "x=a,b", "--num-draws", 100, "--seed", 3)
    command = ("predict", files / "tree.nc", model, files / "new.parquet", *columns, "--out", out)
    assert f"wrote {out}" in run_vcmc(*command)
    frame = pytest.importorskip("pandas").read_parquet(files / "new.parquet")
    expected = vcmc.predict(
        read_tree(files / "tree.nc"),
        load_model(model, {}),
        {"x": frame[["a", "b"]].to_numpy()},
        num_draws=100,
        seed=3,
        progress=False,
    )
    for name, values in read(out).items():
        np.testing.assert_array_equal(values, expected[name])
    assert f"wrote {out}" in run_vcmc(*command)  # complete already
    output = run_vcmc(*command, "--num-draws", 50, code=1)
    assert "holds other predictions: draws, model, blocks differ" in " ".join(output.split())


def test_models_learn_their_shapes_from_the_rows_they_were_fitted_to(files):
    model, out = f"{files}/models.py:regression", files / "out.parquet"
    command = ("predict", files / "tree.nc", model, files / "new.parquet", "--out", out)
    columns = ("--column", "x=a,b", "--column", "y=bought")
    output = run_vcmc(*command, "--column", "x=a,b", code=1)
    assert "pass --fitted-to with the file" in " ".join(output.split())
    run_vcmc(*command, *columns, "--fitted-to", files / "old.parquet")
    frame = pytest.importorskip("pandas").read_parquet(files / "new.parquet")
    beta = vcmc.posterior_draws(read_tree(files / "tree.nc"))["beta"]
    x = frame[["a", "b"]].to_numpy()
    sd = np.sqrt(1 + np.var(x @ beta.T, axis=1))
    difference = read(out)["mean"] - x @ beta.mean(axis=0)
    np.testing.assert_array_less(np.abs(difference), 4.5 * sd / np.sqrt(len(beta)))


def test_errors_are_one_line(files):
    model = f"{files}/models.py:plain"
    output = run_vcmc("predict", files / "tree.nc", model, files / "new.parquet", code=1)
    assert output.startswith("Error: rows must have the columns that the model predicts from")
    output = run_vcmc("predict", files / "none", model, files / "new.parquet", code=1)
    assert "there is no run directory" in output
