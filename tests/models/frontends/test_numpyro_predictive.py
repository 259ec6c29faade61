"""New values of observed sites, against NumPyro's `Predictive` and closed forms."""

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Predictive

import vcmc

ROWS = {"x": np.linspace(-1, 1, 30), "y": np.zeros(30)}
NUM_KEYS = 4000


def simulated(converted, params, rows):
    keys = jax.random.split(jax.random.key(0), NUM_KEYS)
    return jax.vmap(lambda key: converted.simulate_rows(key, params, rows))(keys)


def test_observed_sites_are_drawn_with_or_without_their_column():
    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(slope * x, 0.5), obs=y)

    converted = vcmc.from_numpyro(model, ROWS)
    new = {"x": jnp.array([0.0, 2.0, 5.0])}
    for rows in (new, new | {"y": jnp.full(3, 1000.0)}):
        values = np.asarray(simulated(converted, {"slope": jnp.array(2.0)}, rows)["y"])
        error = 4 * 0.5 / np.sqrt(NUM_KEYS)
        np.testing.assert_allclose(values.mean(axis=0), [0.0, 4.0, 10.0], atol=error)
        np.testing.assert_allclose(values.std(axis=0), 0.5, rtol=4 / np.sqrt(2 * NUM_KEYS))


def test_means_are_those_of_predictive():
    def model(x, y=None, *, scale):
        slope = numpyro.sample("net/slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Poisson(jnp.exp(slope * x) * scale), obs=y)

    converted = vcmc.from_numpyro(model, ROWS, constants={"scale": 3.0})
    new = {"x": jnp.array([-1.0, 0.5])}
    values = np.asarray(simulated(converted, {"net.slope": jnp.array(0.7)}, new)["y"])
    draws = {"net/slope": np.full(NUM_KEYS, 0.7)}
    expected = np.asarray(Predictive(model, draws)(jax.random.key(1), **new, scale=3.0)["y"])
    error = 4 * expected.std(axis=0) * np.sqrt(2 / NUM_KEYS)
    assert (np.abs(values.mean(axis=0) - expected.mean(axis=0)) < error).all()


def test_rows_come_first_whatever_the_plates_say():
    def model(x, y):
        means = numpyro.sample("means", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("outcomes", 2, dim=-2), numpyro.plate("rows", x.shape[0], dim=-1):
            numpyro.sample(
                "y", dist.Normal(means[:, None] + x, 0.1), obs=y.T if y is not None else y
            )

    rows = {"x": ROWS["x"], "y": np.zeros((30, 2))}
    converted = vcmc.from_numpyro(model, rows)
    new = {"x": jnp.array([1.0, 2.0, 3.0])}
    values = simulated(converted, {"means": jnp.array([10.0, 20.0])}, new)["y"]
    expected = [[11, 21], [12, 22], [13, 23]]
    np.testing.assert_allclose(np.mean(values, axis=0), expected, atol=0.4 / np.sqrt(NUM_KEYS))


def pair(y=None):
    means = numpyro.sample("means", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(means, 0.5).to_event(1), obs=y)


def test_every_row_of_a_model_without_predictors_has_a_value_of_its_own():
    """In a plate of the rows, `Predictive` draws the same."""
    converted = vcmc.from_numpyro(pair, {"y": np.random.default_rng(0).normal(size=(30, 2))})
    params = {"means": jnp.array([1.0, 2.0])}

    def in_plate():
        with numpyro.plate("rows", 2):  # as many rows as an outcome has numbers
            pair()

    for rows in ({"y": jnp.zeros((2, 2))}, {"name of a row": jnp.arange(2)}):
        values = np.asarray(simulated(converted, params, rows)["y"]).reshape(NUM_KEYS, 4)
        draws = {"means": np.tile(params["means"], (NUM_KEYS, 1))}
        predictive = Predictive(numpyro.handlers.condition(in_plate, params), draws)
        expected = np.asarray(predictive(jax.random.key(1))["y"]).reshape(NUM_KEYS, 4)
        error = 4 * 0.5 * np.sqrt(2 / NUM_KEYS)
        np.testing.assert_allclose(values.mean(axis=0), expected.mean(axis=0), atol=error)
        np.testing.assert_allclose(np.cov(values.T), 0.25 * np.eye(4), atol=4 * 0.3 / 60)


def test_a_part_of_the_outcomes_may_be_without_predictors():
    def model(x, y, count):
        level = numpyro.sample("level", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(level + x, 0.1), obs=y)
        numpyro.sample("count", dist.Poisson(jnp.exp(level)).mask(True), obs=count)

    converted = vcmc.from_numpyro(model, {**ROWS, "count": np.ones(30)})
    values = simulated(converted, {"level": jnp.array(1.0)}, {"x": jnp.zeros(5)})
    assert values["y"].shape == values["count"].shape == (NUM_KEYS, 5)
    assert np.std(np.asarray(values["count"])[0]) > 0 or np.std(values["count"][1]) > 0


def test_latent_values_of_rows_are_drawn_anew():
    """A mixture whose assignments are summed out in the likelihood."""

    def model(x, y):
        means = numpyro.sample("means", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            which = numpyro.sample(
                "which", dist.Bernoulli(0.25), infer={"enumerate": "parallel"}
            ).astype(int)
            numpyro.sample("y", dist.Normal(means[which], 0.1), obs=y)

    converted = vcmc.from_numpyro(model, ROWS)
    new = {"x": jnp.zeros(5)}
    values = simulated(converted, {"means": jnp.array([0.0, 1.0])}, new)["y"]
    np.testing.assert_allclose(np.mean(np.asarray(values) > 0.5), 0.25, atol=0.013)


def test_models_travel_to_other_processes():
    """A nested function would be pickled with the lock that it refers to."""

    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)

    converted = cloudpickle.loads(cloudpickle.dumps(vcmc.from_numpyro(model, ROWS)))
    values = simulated(converted, {"slope": jnp.array(2.0)}, {"x": jnp.ones(3)})["y"]
    np.testing.assert_allclose(np.mean(values), 2.0, atol=4.5 / np.sqrt(3 * NUM_KEYS))
