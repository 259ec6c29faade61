"""Predictions of new rows, against closed forms and NumPyro."""

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


def test_what_cannot_be_predicted_is_refused(conjugate, model, tree):
    with pytest.raises(ValueError, match=r"vcmc.Model\(..., simulate="):
        vcmc.predict(tree, conjugate.model, NEW)
    with pytest.raises(ValueError, match=r"predicts, \['both', 'y'\]; got None"):
        vcmc.predict(tree, model, NEW, progress=False)
    with pytest.raises(ValueError, match=r"predicts, \['both', 'y'\]; got 'z'"):
        vcmc.predict(tree, model, NEW, "z", progress=False)
    with pytest.raises(ValueError, match=r"columns that the model .* \['w'\] \(KeyError: 'x'\)"):
        vcmc.predict(tree, model, {"w": NEW["x"]}, "y", progress=False)
    other = make_tree({"posterior": {"gamma": np.zeros((1, 100))}}, {})
    with pytest.raises(ValueError, match=r"the tree has no draws of \['beta'\]"):
        vcmc.predict(other, model, NEW, "y")
    with pytest.raises(TypeError, match="with a group 'posterior'"):
        vcmc.predict(make_tree({}, {}), model, NEW, "y")
    grouped = varying_means()
    with pytest.raises(ValueError, match="not available for models with groups"):
        vcmc.predict(tree, grouped.model, grouped.rows)
    scalar = vcmc.Model(
        space={"beta": vcmc.Real(3)},
        log_prior=conjugate.model.log_prior,
        log_likelihood=conjugate.model.log_likelihood,
        simulate=lambda key, params, rows: {"y": jax.random.normal(key)},
    )
    with pytest.raises(ValueError, match="'y' with one entry per row"):
        vcmc.predict(tree, scalar, NEW, progress=False)
