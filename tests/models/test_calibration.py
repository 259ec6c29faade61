"""Samplers against their models' own simulators: simulation-based calibration, and Geweke's test.

Calibration (Talts et al. 2018): with params drawn from the prior and rows given them, the rank of a
true value among posterior draws is uniform. Geweke (2004): alternating one step of the sampler with
new rows given its state leaves the prior as it is.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import chisquare

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import NUTS, MixtureGibbs, ProbitGibbs, WishartExact, probit_gibbs

NUM_REPLICATIONS, NUM_RANKS = 320, 16


def spread(params):
    """Functions of the centres that do not see labels."""
    return jnp.array(
        [jnp.sum(params["centres"] ** 2), jnp.sum(params["centres"]), jnp.max(params["centres"])]
    )


CASES = {
    "probit": (vcmc.models.Probit(2), 15, ProbitGibbs(num_warmup=200), 25, lambda p: p["beta"]),
    "logistic": (vcmc.models.Logistic(2), 15, NUTS(num_warmup=200), 5, lambda p: p["beta"]),
    "mixture": (
        vcmc.models.GaussianMixture(2, 1, 2.0, 1.0),
        8,
        MixtureGibbs(num_warmup=200),
        40,
        spread,
    ),
    "wishart": (
        vcmc.models.NormalWishart(2, dof=4, mean=[0.0, 0.0]),
        5,
        WishartExact(),
        1,
        lambda p: p["precision"][np.triu_indices(2)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_ranks_of_the_truth_are_uniform(case):
    model, num_rows, sampler, thin, statistic = case
    start = jnp.zeros(model.space.dim)
    functions = jax.jit(jax.vmap(lambda point: statistic(model.space.constrain(point))))
    ranks = []
    for seed in range(NUM_REPLICATIONS):
        params, rows = model.simulate(seed, num_rows)
        density = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))
        chain = sampler.run(density, start, jax.random.key(seed), thin * (NUM_RANKS - 1))
        draws = np.asarray(functions(jnp.asarray(chain.points[thin - 1 :: thin])))
        truth = np.asarray(statistic({name: jnp.asarray(value) for name, value in params.items()}))
        ranks.append((draws < truth).sum(axis=0))
    for values in np.array(ranks).T:
        counts = np.bincount(values, minlength=NUM_RANKS)
        assert chisquare(counts).pvalue > 1e-3, counts


def geweke(model, sampler, num_rows, num_steps):
    """States of the chain that alternates a step of the sampler with new rows given its state."""
    constrain = jax.jit(model.space.constrain)
    state = model.simulate(0, num_rows).params
    points = [model.space.unconstrain({name: jnp.asarray(value) for name, value in state.items()})]
    for seed in range(num_steps):
        params = {name: np.asarray(value) for name, value in constrain(points[-1]).items()}
        rows = model.simulate(seed, num_rows, params).rows
        density = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))
        chain = sampler.run(density, points[-1], jax.random.key(seed), 1)
        points.append(jnp.asarray(chain.points[-1]))
    return np.array(points)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "sampler"),
    [
        (vcmc.models.Probit(2, prior_scale=1.5), ProbitGibbs(num_warmup=0)),
        (vcmc.models.GaussianMixture(2, 1, 1.5, 1.0), MixtureGibbs(num_warmup=0)),
    ],
    ids=["probit", "mixture"],
)
def test_alternating_with_new_rows_leaves_the_prior_as_it_is(model, sampler, monkeypatch):
    monkeypatch.setattr(
        probit_gibbs, "CACHE_BYTES", 0
    )  # the kernel in NumPy; calibration tests the compiled one
    draws = geweke(model, sampler, 4, 2500)
    for values, expected in ((draws, 0.0), (draws**2, 1.5**2)):
        effective = array_stats.ess(values[None], chain_axis=0, draw_axis=1, method="mean")
        assert (effective > 100).all()
        assert (
            np.abs(values.mean(axis=0) - expected) < 4 * values.std(axis=0) / np.sqrt(effective)
        ).all()
