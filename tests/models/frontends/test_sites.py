import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from vcmc.models.frontends.sites import Seeded, log_prob, sites_on, trace_at

ROWS = {"y": np.zeros(20)}


def model(y, scale=1.0):
    mean = numpyro.sample("mean", dist.Normal(0, scale).expand([2]).to_event(1))
    numpyro.deterministic("square", mean**2)
    numpyro.factor("penalty", -jnp.sum(mean**4))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("kind", dist.Categorical(jnp.ones(3) / 3), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mean[0], 1), obs=y)


def test_sites_have_kinds_and_shapes():
    sites = sites_on(Seeded(model, {}), ROWS, 6)
    assert {name: site.kind for name, site in sites.items()} == {
        "mean": "latent",
        "square": "deterministic",
        "penalty": "factor",
        "kind": "enumerated",
        "y": "observed",
    }
    assert sites["y"].log_prob_shapes == ((6,),)
    assert sites["mean"].log_prob_shapes == ((), (2,))
    assert sites["kind"].is_discrete
    assert not sites["mean"].is_discrete


def test_traces_are_at_the_params_with_the_constants():
    params = {"mean": jnp.array([1.0, 2.0])}
    trace = trace_at(Seeded(model, {"scale": 3.0}), params, ROWS)
    np.testing.assert_allclose(trace["square"]["value"], [1.0, 4.0])
    expected = dist.Normal(0, 3).log_prob(params["mean"])
    np.testing.assert_allclose(log_prob(trace["mean"], depth=1), expected)
    np.testing.assert_allclose(log_prob(trace["mean"]), expected.sum())


def test_models_that_fail_on_some_number_of_rows_are_refused():
    def fixed(y):
        numpyro.sample("y", dist.Normal(jnp.zeros(20), 1), obs=y)

    with pytest.raises(ValueError, match=r"any number of rows, but fails on 6: .* hard-coded"):
        sites_on(Seeded(fixed, {}), ROWS, 6)
