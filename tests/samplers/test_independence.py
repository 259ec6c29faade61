"""Independence sampling: acceptance, moments, and when it is chosen."""

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import Independence
from vcmc.samplers.independence import acceptance_rate


def test_proposals_to_a_normal_density_are_accepted(conjugate):
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 1).load(0), jnp.asarray(1.0))
    start = jnp.asarray(np.linalg.lstsq(conjugate.rows["x"], conjugate.rows["y"])[0])
    assert acceptance_rate(density, start) > 0.85
    chain = Independence().run(density, start, jax.random.key(0), 200)
    assert chain.stats["acceptance_rate"].mean() > 0.85
    assert set(chain.stats["walker"].tolist()) == set(range(32))


def test_proposals_take_up_the_moments_of_a_skewed_density():
    """The logarithm of a gamma variable, whose curvature at the mode gives too small a spread."""
    model = vcmc.Model(
        space={"theta": vcmc.Real()},
        log_prior=lambda params: 0.7 * params["theta"] - jnp.exp(params["theta"]),
        log_likelihood=lambda params, rows: 0.0 * rows["y"],
    )
    density = Subposterior(model, vcmc.split({"y": np.zeros(10)}, 1).load(0), jnp.asarray(1.0))
    start = jnp.asarray([np.log(0.7)])
    state = Independence().init(density, start, jax.random.key(0))
    mean, sd = digamma(0.7), np.sqrt(polygamma(1, 0.7))
    # the largest weights are cut off, so that not all of the tail is taken up
    assert abs(state.centre[0] - mean) < abs(np.log(0.7) - mean) / 2
    assert 0.6 * sd < state.root[0, 0] < 1.2 * sd
    chain = Independence().run(density, start, jax.random.key(0), 20_000)
    ess = arviz_stats.ess(chain.points.reshape(-1, 32).T)
    assert chain.points.mean() == pytest.approx(mean, abs=4 * sd / ess**0.5)


def test_few_proposals_to_a_very_skewed_density_are_accepted():
    model = vcmc.Model(
        space={"theta": vcmc.Real(8)},
        log_prior=lambda params: jnp.sum(0.5 * params["theta"] - jnp.exp(params["theta"])),
        log_likelihood=lambda params, rows: 0.0 * rows["y"],
    )
    shard = vcmc.split({"y": np.zeros(10)}, 1).load(0)
    assert acceptance_rate(Subposterior(model, shard, jnp.asarray(1.0)), jnp.zeros(8)) < 0.6


def test_settings_are_checked():
    with pytest.raises(ValueError, match="num_walkers must be an integer of at least 1; got 0"):
        Independence(num_walkers=0)
