"""Counts and binary outcomes in groups, against NUTS on the joint model of globals and locals."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

import vcmc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NUM_GROUPS, GROUP_ROWS = 80, 8
GLOBALS = ("intercept", "slope", "tau")


def counts(group, x, y=None, *, num_groups):
    return numpyro.sample("y", dist.Poisson(jnp.exp(predictor(group, x, num_groups))), obs=y)


def outcomes(group, x, y=None, *, num_groups):
    return numpyro.sample("y", dist.Bernoulli(logits=predictor(group, x, num_groups)), obs=y)


def predictor(group, x, num_groups):
    """Return intercepts that vary between groups, not centred: NUTS needs it, vcmc does not."""
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    slope = numpyro.sample("slope", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0, 1))
    effect = numpyro.deterministic("effect", tau * z)
    return intercept + slope * x + effect[group]


def simulated(model):
    generator = np.random.default_rng(3)
    group = np.repeat(np.arange(NUM_GROUPS), GROUP_ROWS)
    x = generator.normal(size=len(group))
    values = {"intercept": 0.3, "slope": 0.5, "tau": 0.8, "z": generator.normal(size=NUM_GROUPS)}
    known = numpyro.handlers.substitute(model, {name: jnp.asarray(v) for name, v in values.items()})
    y = numpyro.handlers.seed(known, 3)(group, x, num_groups=NUM_GROUPS)
    return {"group": group, "x": x, "y": np.asarray(y)}


def nuts(model, rows):
    """Return draws of the joint model, (chain, draw, …)."""
    mcmc = MCMC(
        NUTS(model),
        num_warmup=500,
        num_samples=2000,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), **rows, num_groups=NUM_GROUPS)
    return {name: np.asarray(value) for name, value in mcmc.get_samples(True).items()}


@pytest.mark.parametrize("model", [counts, outcomes])
def test_globals_and_locals_are_those_of_nuts(model, monte_carlo, assert_same):
    rows = simulated(model)
    expected = nuts(model, rows)
    converted = vcmc.from_numpyro(model, rows, groups="group", num_groups="num_groups")
    tree = vcmc.infer(converted, rows, num_shards=1, progress=False)
    assert tree.attrs["verdict"] == "good"
    for name in GLOBALS:
        assert_same(monte_carlo(tree["posterior"][name]), monte_carlo(expected[name]), name)
    effect = tree["posterior"]["effect"].to_numpy()
    for number in range(NUM_GROUPS):
        draws = monte_carlo(effect[..., number])
        assert_same(draws, monte_carlo(expected["effect"][..., number]), f"effect[{number}]")
