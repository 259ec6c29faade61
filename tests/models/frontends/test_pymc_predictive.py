"""New values of PyMC's observed variables, against PyMC's own predictions and closed forms."""

import builtins
import sys

import cloudpickle
import numpy as np
import pytest

import vcmc
from vcmc.results.tree import make_tree

pytestmark = pytest.mark.slow  # importing PyMC takes seconds

NUM_DRAWS = 2000
MAX_ERRORS = 4.5  # standard errors; of some tens of comparisons, none exceeds it
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(8, 2))
ROWS = {"x": GENERATOR.normal(size=(20, 2)), "y": GENERATOR.normal(size=20)}


def regression(pm, rows=ROWS):
    """The names of its parameters are not in the order in which they are defined."""
    with pm.Model() as model:
        x, y = (pm.Data(name, rows[name]) for name in ("x", "y"))
        sigma = pm.HalfNormal("sigma", 1)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("obs", x @ beta, sigma, observed=y)
    return model


def regression_tree():
    generator = np.random.default_rng(1)
    beta = [1.0, -1.0] + 0.1 * generator.normal(size=(1, NUM_DRAWS, 2))
    sigma = 0.5 * np.exp(0.1 * generator.normal(size=(1, NUM_DRAWS)))
    return make_tree({"posterior": {"beta": beta, "sigma": sigma}}, {"num_shards": 1})


def test_means_and_sds_are_those_of_pymc(pm):
    model, tree = regression(pm), regression_tree()
    converted = vcmc.from_pymc(model, ROWS)
    result = vcmc.predict(tree, converted, {"x": X}, "obs", progress=False)
    with model:
        pm.set_data({"x": X, "y": np.zeros(len(X))})
        own = pm.sample_posterior_predictive(
            tree["posterior"].to_dataset(), random_seed=1, progressbar=False
        )
    expected = own.posterior_predictive["obs"].to_numpy()[0]
    beta, sigma = (np.concatenate(tree["posterior"][name].to_numpy()) for name in ("beta", "sigma"))
    sd = np.sqrt(np.var(X @ beta.T, axis=1) + np.mean(sigma**2))
    error = np.sqrt(2 / NUM_DRAWS) * sd  # of a difference of two means
    difference = result["mean"] - expected.mean(axis=0)
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * error)
    # scales differ by a tenth, so tails are hardly heavier than those of a normal
    difference = result["sd"] - expected.std(axis=0, ddof=1)
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * 1.1 * error / np.sqrt(2))


def test_the_users_model_and_its_random_numbers_are_left_alone(pm):
    model, tree = regression(pm), regression_tree()
    converted = vcmc.from_pymc(model, ROWS)
    states = [rng.get_value().bit_generator.state for rng in model["obs"].owner.inputs[:1]]
    first = vcmc.predict(tree, converted, {"x": X}, num_draws=20, progress=False)
    again = vcmc.predict(tree, converted, {"x": X}, num_draws=20, progress=False)
    np.testing.assert_array_equal(first["mean"], again["mean"])
    after = [rng.get_value().bit_generator.state for rng in model["obs"].owner.inputs[:1]]
    assert states == after
    assert model["x"].get_value().shape == (20, 2)


def test_simulators_can_be_sent_to_other_processes(pm):
    converted = vcmc.from_pymc(regression(pm), ROWS)
    arguments = ("obs", [1], {"beta": np.ones((3, 2)), "sigma": np.ones(3)}, {}, {"x": X})
    expected = converted.simulate_rows.simulate(*arguments)
    copied = cloudpickle.loads(cloudpickle.dumps(converted.simulate_rows))
    np.testing.assert_array_equal(copied.simulate(*arguments), expected)


def test_known_and_new_groups_have_their_closed_forms(pm):
    """Every draw is the same, so that variances are those of the noise and of the population."""
    labels = np.array(["a", "b", "c"])
    rows = {"group": np.repeat(labels, 2), "y": np.arange(6.0)}
    with pm.Model(coords={"group": labels}) as model:
        group = pm.Data("group", np.repeat(np.arange(3), 2))
        y = pm.Data("y", rows["y"])
        tau = pm.HalfNormal("tau", 1)
        mu = pm.Normal("mu", 0, 10)
        alpha = pm.Normal("alpha", mu, tau, dims="group")
        pm.Normal("obs", alpha[group], 0.5, observed=y)
    converted = vcmc.from_pymc(model, rows, groups="group")
    alpha = np.array([1.0, 5.0, 9.0])
    posterior = {"mu": 4.0, "tau": 2.0, "alpha": alpha}
    tree = make_tree(
        {
            "posterior": {
                name: np.broadcast_to(value, (1, NUM_DRAWS, *np.shape(value))).copy()
                for name, value in posterior.items()
            },
            "dims": {"alpha": np.array(["group"])},
            "coords": {"group": labels},
        },
        {"num_shards": 1},
    )
    new = {"group": np.array(["c", "z", "a", "z"])}
    new["x"] = np.zeros(4)  # a column that the model does not have
    values = vcmc.predict(tree, converted, new, draws=True, progress=False)["obs"].to_numpy()[0]
    sds = np.array([0.5, np.hypot(2, 0.5), 0.5, np.hypot(2, 0.5)])
    error = sds / np.sqrt(NUM_DRAWS)
    difference = values.mean(axis=0) - [9.0, 4.0, 1.0, 4.0]
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * error)
    difference = values.std(axis=0) - sds
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * error / np.sqrt(2))
    shared = np.corrcoef(values.T)[1, 3]
    assert abs(shared - 4 / 4.25) < MAX_ERRORS * (1 - (4 / 4.25) ** 2) / np.sqrt(NUM_DRAWS)


def test_rows_that_do_not_fit_are_refused(pm):
    converted, tree = vcmc.from_pymc(regression(pm), ROWS), regression_tree()
    with pytest.raises(ValueError, match=r"\['x'\] are missing, and the columns are \['w'\]"):
        vcmc.predict(tree, converted, {"w": X}, progress=False)
    with pytest.raises(ValueError, match="it fails on new rows with the columns"):
        vcmc.predict(tree, converted, {"x": np.ones((4, 3))}, progress=False)
    with pytest.raises(ValueError, match=r"rows\['x'\] must hold numbers"):
        vcmc.predict(tree, converted, {"x": np.array(["a", "b"])}, progress=False)


def test_without_pymc_the_error_names_the_command(monkeypatch):
    imported = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "pymc":
            raise ImportError(name)
        return imported(name, *arguments, **keywords)

    monkeypatch.delitem(sys.modules, "pymc", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'vcmc\[pymc\]'"):
        vcmc.from_pymc(None, ROWS)
