"""Predictions of new rows, against closed forms and NumPyro."""

import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Predictive

import vcmc
from vcmc.executors import Processes
from vcmc.inference import prediction
from vcmc.results.tree import make_tree
from vcmc.testing.gaussians import varying_means

NEW = {"x": np.random.default_rng(8).normal(size=(37, 3))}


@pytest.fixture(scope="module")
def model(conjugate):
    return vcmc.Model(
        space={"beta": vcmc.Real(3)},
        log_prior=conjugate.model.log_prior,
        log_likelihood=conjugate.model.log_likelihood,
        simulate=lambda key, params, rows: {
            "y": rows["x"] @ params["beta"] + jax.random.normal(key, rows["x"].shape[:1]),
            "both": rows["x"][:, :2] + params["beta"][:2],
        },
    )


@pytest.fixture(scope="module")
def tree(conjugate):
    draws = np.random.default_rng(5).multivariate_normal(*conjugate.posterior(), size=(2, 2000))
    return make_tree({"posterior": {"beta": draws}}, {"num_shards": 3})


@pytest.mark.parametrize("max_rows", [5, 10**6])
def test_predictions_are_normal_around_the_regression(
    conjugate, model, tree, max_rows, monkeypatch
):
    """Rows are in their order, however they are cut into shards and blocks."""
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * 4000 * max_rows)
    result = vcmc.predict(tree, model, NEW, "y", progress=False)
    mean, covariance = conjugate.posterior()
    sd = np.sqrt(1 + np.einsum("ni,ij,nj->n", NEW["x"], covariance, NEW["x"]))
    error = sd / np.sqrt(4000)  # the largest of 37 is below 4.5 of them
    np.testing.assert_array_less(np.abs(result["mean"] - NEW["x"] @ mean), 4.5 * error)
    np.testing.assert_array_less(np.abs(result["sd"] - sd), 4.5 * error / np.sqrt(2))
    # the standard error of these quantiles is sqrt(0.05 * 0.95) / 0.103 = 2.1 of a mean's
    for name, z in (("q05", -1.645), ("q50", 0.0), ("q95", 1.645)):
        expected = NEW["x"] @ mean + z * sd
        np.testing.assert_array_less(np.abs(result[name] - expected), 4.5 * 2.12 * error)
    assert result["mean"].dims == ("row",)


def test_all_draws_belong_to_their_draws_of_the_posterior(model, tree):
    result = vcmc.predict(tree, model, NEW, "both", draws=True, num_draws=100, progress=False)
    assert result["both"].dims == ("chain", "draw", "row", "both_dim_0")
    assert result["both"].shape == (2, 50, 37, 2)
    beta = tree["posterior"]["beta"].to_numpy()[:, ::40, None, :2]
    np.testing.assert_allclose(result["both"], NEW["x"][:, :2] + beta, rtol=1e-12)


def test_draws_of_rows_are_independent_and_reproducible(model, tree):
    rows = {"x": np.zeros((20, 3))}
    arguments = tree, model, rows, "y"
    first = vcmc.predict(*arguments, draws=True, progress=False)["y"].to_numpy().reshape(4000, 20)
    again = vcmc.predict(*arguments, draws=True, progress=False)["y"].to_numpy().reshape(4000, 20)
    other = vcmc.predict(*arguments, draws=True, seed=1, progress=False)["y"].to_numpy()
    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(80_000)
    correlations = np.corrcoef(first.T)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(4000)


@pytest.mark.slow
def test_executors_agree(model, tree):
    expected = vcmc.predict(tree, model, NEW, "y", num_draws=100, progress=False)
    with Processes(2) as executor:
        result = vcmc.predict(
            tree, model, NEW, "y", num_draws=100, executor=executor, progress=False
        )
    for name in expected:
        np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=1e-12)


def test_numpyro_models_predict_what_predictive_does(conjugate):
    def logistic(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)

    rows = {"x": conjugate.rows["x"], "y": (conjugate.rows["y"] > 0).astype(float)}
    model = vcmc.from_numpyro(logistic, rows)
    tree = vcmc.infer(model, rows, num_shards=3, progress=False)
    result = vcmc.predict(tree, model, NEW, progress=False)
    beta = vcmc.posterior_draws(tree)["beta"]
    expected = Predictive(logistic, {"beta": beta})(jax.random.key(1), jnp.asarray(NEW["x"]))["y"]
    p = np.mean(1 / (1 + np.exp(-beta @ NEW["x"].T)), axis=0)
    error = np.sqrt(p * (1 - p) / len(beta)) + 1e-4
    np.testing.assert_array_less(np.abs(result["mean"] - p), 4.5 * error)
    difference = result["mean"] - np.asarray(expected).mean(axis=0)
    np.testing.assert_array_less(np.abs(difference), 4.5 * np.sqrt(2) * error)


def test_rows_may_be_few_split_or_in_files(model, tree, tmp_path):
    single = {"x": NEW["x"][:1]}
    assert vcmc.predict(tree, model, single, "both", progress=False).sizes["row"] == 1
    expected = vcmc.predict(tree, model, NEW, "both", progress=False)
    files = vcmc.split(NEW, 2, folder=tmp_path, progress=False)
    for given in (files, vcmc.split(NEW, 4, seed=2)):
        result = vcmc.predict(tree, model, given, "both", progress=False)
        np.testing.assert_allclose(result["mean"], expected["mean"], rtol=1e-12)
    with pytest.raises(ValueError, match="pass the files that were split"):
        vcmc.predict(tree, model, files, "y", out=tmp_path / "a.parquet")


def write_parquet(path, rows=NEW):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = pa.FixedSizeListArray.from_arrays(pa.array(rows["x"].ravel()), 3)
    pq.write_table(pa.table({"x": x}), path, row_group_size=11)
    return path


def columns_of(path):
    pq = pytest.importorskip("pyarrow.parquet")
    return {name: np.array(values) for name, values in pq.read_table(path).to_pydict().items()}


@pytest.mark.parametrize("name", ["y", "both"])
def test_files_hold_exactly_what_is_returned_in_memory(model, tree, name, tmp_path, monkeypatch):
    """From a Parquet file to another, in parts of two blocks of two or three rows."""
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * 4000 * 5)
    monkeypatch.setattr(prediction, "PART_ROWS", 8)
    expected = vcmc.predict(tree, model, NEW, name, progress=False)
    rows = write_parquet(tmp_path / "rows.parquet")
    out = vcmc.predict(tree, model, rows, name, out=tmp_path / "out.parquet", progress=False)
    assert out == tmp_path / "out.parquet"
    columns = columns_of(out)
    assert list(columns) == list(expected)
    for key, values in columns.items():
        np.testing.assert_array_equal(values, expected[key])
    mapped = vcmc.predict(tree, model, rows, name, progress=False)
    xr = pytest.importorskip("xarray")
    xr.testing.assert_identical(mapped, expected)


def test_an_interrupted_prediction_goes_on_after_its_last_part(model, tree, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * 4000 * 2)
    monkeypatch.setattr(prediction, "PART_ROWS", 4)
    rows, out = write_parquet(tmp_path / "rows.parquet"), tmp_path / "out.parquet"
    summarize, sizes = prediction.summarized, []

    def counted(values):
        sizes.append(len(values))
        if sum(sizes) > 21:
            raise KeyboardInterrupt
        return summarize(values)

    def run(**changes):
        arguments = {"executor": vcmc.executors.Local(1), "progress": False, **changes}
        return vcmc.predict(tree, model, rows, "y", out=out, **arguments)

    monkeypatch.setattr(prediction, "summarized", counted)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert not out.exists()
    with pytest.raises(ValueError, match="parts of other predictions: seed, model differ"):
        run(seed=3)
    sizes.clear()
    monkeypatch.setattr(prediction, "summarized", lambda v: sizes.append(len(v)) or summarize(v))
    run()
    assert sum(sizes) == 37 - 20  # five parts of four rows were complete
    expected = vcmc.predict(tree, model, NEW, "y", progress=False)
    np.testing.assert_array_equal(columns_of(out)["mean"], expected["mean"])
    sizes.clear()
    assert run() == out  # complete: nothing is simulated
    assert not sizes


JOB = """
import os, signal, sys
import jax, numpy as np, vcmc
from vcmc.inference import prediction
from vcmc.results.prediction_files import PredictionFile
from vcmc.results.tree import make_tree

prediction.MAX_BLOCK_BYTES, prediction.PART_ROWS = 8 * 50 * 2, 4
write_part = PredictionFile.write_part

def write_and_die(self, number, columns):
    write_part(self, number, columns)
    if number == 2 and sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)

PredictionFile.write_part = write_and_die
model = vcmc.Model(
    space={"beta": vcmc.Real(3)},
    log_prior=lambda params: -0.5 * (params["beta"] ** 2).sum(),
    log_likelihood=lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    simulate=lambda key, params, rows: {
        "y": rows["x"] @ params["beta"] + jax.random.normal(key, rows["x"].shape[:1])
    },
)
draws = np.random.default_rng(0).normal(size=(1, 50, 3))
tree = make_tree({"posterior": {"beta": draws}}, {"num_shards": 1})
vcmc.predict(tree, model, "rows.parquet", out=sys.argv[2])
"""


@pytest.mark.slow
def test_a_killed_process_is_resumed_with_the_same_numbers(tmp_path):
    pytest.importorskip("pyarrow")
    write_parquet(tmp_path / "rows.parquet")
    script = tmp_path / "job.py"
    script.write_text(JOB)
    codes = []
    for word in ("die", "live"):
        command = [sys.executable, str(script), word, "out.parquet"]
        codes.append(subprocess.run(command, cwd=tmp_path, check=False).returncode)
    assert codes == [-signal.SIGKILL, 0]
    subprocess.run([sys.executable, str(script), "live", "whole.parquet"], cwd=tmp_path, check=True)
    resumed, whole = (columns_of(tmp_path / name) for name in ("out.parquet", "whole.parquet"))
    for name, values in whole.items():
        np.testing.assert_array_equal(resumed[name], values)


def test_what_cannot_be_predicted_is_refused(conjugate, model, tree):
    with pytest.raises(ValueError, match=r"vcmc.Model\(..., simulate="):
        vcmc.predict(tree, conjugate.model, NEW)
    with pytest.raises(ValueError, match=r"predicts, \['both', 'y'\]; got None"):
        vcmc.predict(tree, model, NEW, progress=False)
    with pytest.raises(ValueError, match=r"predicts, \['both', 'y'\]; got 'z'"):
        vcmc.predict(tree, model, NEW, "z", progress=False)
    with pytest.raises(ValueError, match=r"columns that the model .* with w: .*KeyError: 'x'"):
        vcmc.predict(tree, model, {"w": NEW["x"]}, "y", progress=False)
    other = make_tree({"posterior": {"gamma": np.zeros((1, 100))}}, {})
    with pytest.raises(ValueError, match=r"the tree has no draws of \['beta'\]"):
        vcmc.predict(other, model, NEW, "y")
    with pytest.raises(TypeError, match="with a group 'posterior'"):
        vcmc.predict(make_tree({}, {}), model, NEW, "y")
    grouped = varying_means()
    with pytest.raises(ValueError, match=r"simulate=lambda key, params, local, rows"):
        vcmc.predict(tree, grouped.model, grouped.rows)
    with pytest.raises(ValueError, match="leave one of them out"):
        vcmc.predict(tree, model, NEW, "y", draws=True, out="a.parquet")
    with pytest.raises(ValueError, match="num_draws must be an integer of at least 1"):
        vcmc.predict(tree, model, NEW, "y", num_draws=0)
    scalar = vcmc.Model(
        space={"beta": vcmc.Real(3)},
        log_prior=conjugate.model.log_prior,
        log_likelihood=conjugate.model.log_likelihood,
        simulate=lambda key, params, rows: {"y": jax.random.normal(key)},
    )
    with pytest.raises(ValueError, match="'y' with one entry per row"):
        vcmc.predict(tree, scalar, NEW, progress=False)
