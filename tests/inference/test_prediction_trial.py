"""The trial on new rows: which columns are used, and rows that do not fit the model."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.data.row_blocks import RowStream
from vcmc.inference.prediction_trial import check_predictors, try_model
from vcmc.results.tree import make_tree


def regression(x, z, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta + z, 1.0), obs=y)


ROWS = {"x": np.ones((9, 2)), "z": np.ones(9), "y": np.ones(9)}
NEW = {"x": np.ones((4, 2)), "z": np.ones(4)}


@pytest.fixture(scope="module")
def model():
    return vcmc.from_numpyro(regression, ROWS)


@pytest.fixture(scope="module")
def tree():
    return make_tree({"posterior": {"beta": np.zeros((1, 10, 2))}}, {"num_shards": 1})


@pytest.fixture(scope="module")
def plain():
    return vcmc.Model(
        space={"beta": vcmc.Real(2)},
        log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
        log_likelihood=lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
        simulate=lambda key, params, rows: {
            "y": rows["x"] @ params["beta"] + jax.random.normal(key, rows["x"].shape[:1])
        },
    )


def test_columns_that_the_model_does_not_use_are_ignored(model, plain, tree):
    names = np.array(["a", "b", "c", "d"])
    more = {**NEW, "name": names, "age": np.full(4, np.nan)}
    for converted in (model, plain):
        expected = vcmc.predict(tree, converted, NEW, progress=False)
        result = vcmc.predict(tree, converted, more, progress=False)
        np.testing.assert_array_equal(result["mean"], expected["mean"])
    assert try_model(plain, RowStream(more), None, {}).columns == ["x"]
    assert try_model(model, RowStream(more), None, {}).columns == ["x", "z"]


def test_missing_columns_are_named(model, plain, tree):
    with pytest.raises(ValueError, match=r"fitted to, \['z'\] are missing, .* with \['x'\] \("):
        vcmc.predict(tree, model, {"x": NEW["x"]}, progress=False)
    with pytest.raises(ValueError, match=r"new rows with z: float64 \(KeyError: 'x'\)"):
        vcmc.predict(tree, plain, {"z": NEW["z"]}, progress=False)


def test_text_in_place_of_numbers_is_refused(model, plain, tree):
    texts = {**NEW, "x": np.array(["1", "2", "3", "4"])}
    for converted in (model, plain):
        with pytest.raises(ValueError, match=r"rows\['x'\] must hold numbers.*got dtype <U1"):
            vcmc.predict(tree, converted, texts, progress=False)


def test_other_shapes_missing_values_and_no_rows_are_refused(model, tree):
    with pytest.raises(ValueError, match=r"new rows with x: float64 of shape \(3,\), z: f"):
        vcmc.predict(tree, model, {**NEW, "x": np.ones((4, 3))}, progress=False)
    with pytest.raises(ValueError, match=r"rows\['z'\] must be finite"):
        vcmc.predict(tree, model, {**NEW, "z": np.array([1, np.nan, 1, 1])}, progress=False)
    with pytest.raises(ValueError, match="at least one row"):
        vcmc.predict(tree, model, {"x": np.ones((0, 2)), "z": np.ones(0)}, progress=False)
    with pytest.raises(ValueError, match="same number of rows"):
        vcmc.predict(tree, model, {**NEW, "z": np.ones(5)}, progress=False)
    with pytest.raises(ValueError, match="x: 1, z: 4"):  # not that the model fails
        vcmc.predict(tree, model, {**NEW, "x": np.ones((1, 2))}, progress=False)
    for single in (1.0, "a", np.ones(())):
        with pytest.raises(ValueError, match="one entry per row; got a single value"):
            vcmc.predict(tree, model, {**NEW, "z": single}, progress=False)


def test_names_and_trees_of_other_models_are_refused(model, tree):
    with pytest.raises(ValueError, match=r"predicts, \['y'\]; got 'sales'"):
        vcmc.predict(tree, model, NEW, "sales", progress=False)
    other = make_tree({"posterior": {"beta": np.zeros((1, 10, 3))}}, {"num_shards": 1})
    with pytest.raises(ValueError, match="the tree is a result of another model"):
        vcmc.predict(other, model, NEW, progress=False)


def test_a_model_that_counts_its_outcomes_needs_such_a_column(tree):
    def model(y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Normal(beta.sum(), 1.0), obs=y)

    converted = vcmc.from_numpyro(model, {"y": ROWS["y"]})
    assert vcmc.predict(tree, converted, {"y": np.zeros(4)}, progress=False).sizes["row"] == 4
    with pytest.raises(ValueError, match=r"number of rows from \['y'\], give the new rows such"):
        vcmc.predict(tree, converted, {"x": NEW["x"]}, progress=False)


def optional(x, z=None, censored=None, outcome=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    mean = x @ beta if z is None else x @ beta + z
    with numpyro.handlers.mask(mask=True if censored is None else censored == 0):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=outcome)


def test_optional_predictors_that_the_model_was_fitted_to_are_needed(tree):
    rows = {"x": ROWS["x"], "z": ROWS["z"], "censored": np.zeros(9), "outcome": ROWS["y"]}
    converted = vcmc.from_numpyro(optional, rows)
    expected = vcmc.predict(tree, converted, {**rows}, progress=False)["mean"]
    # neither the outcome nor a mask of it says what is predicted
    np.testing.assert_array_equal(
        vcmc.predict(tree, converted, {"x": rows["x"], "z": rows["z"]}, progress=False)["mean"],
        expected,
    )
    without = {name: array for name, array in rows.items() if name != "z"}
    message = r"was fitted to and predicts from; \['z'\] are missing, and the columns are"
    with pytest.raises(ValueError, match=message):
        vcmc.predict(tree, converted, without, progress=False)
    with pytest.raises(ValueError, match=message):
        vcmc.posterior_check(tree, converted, without, progress=False)


def test_optional_predictors_that_the_model_was_not_fitted_to_are_ignored(tree):
    converted = vcmc.from_numpyro(optional, {"x": ROWS["x"], "outcome": ROWS["y"]})
    expected = vcmc.predict(tree, converted, {"x": ROWS["x"]}, progress=False)["mean"]
    more = vcmc.predict(tree, converted, {"x": ROWS["x"], "z": 9 * ROWS["z"]}, progress=False)
    np.testing.assert_array_equal(more["mean"], expected)


def test_optional_predictors_of_models_with_groups_are_needed():
    def model(x, g, num_groups, z=None, y=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("groups", num_groups):
            effect = numpyro.sample("effect", dist.Normal(mean, 1))
        numpyro.sample("y", dist.Normal(effect[g] + x + (0 if z is None else z), 1), obs=y)

    rows = {"x": np.ones(12), "z": np.arange(12.0), "y": np.zeros(12), "g": np.arange(12) % 3}
    converted = vcmc.from_numpyro(model, rows, groups="g", num_groups="num_groups")
    new = {name: rows[name][:4] for name in ("x", "z", "g")}
    check_predictors(converted, new)
    with pytest.raises(ValueError, match=r"predicts from; \['z'\] are missing"):
        check_predictors(converted, ["x", "g"])
