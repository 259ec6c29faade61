"""Laws of samplers: right moments on a known density; same key, same draws; blocks do not matter."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

import vcmc
from vcmc import samplers
from vcmc.model import Subposterior
from vcmc.samplers import base

SAMPLERS = {
    "NUTS": samplers.NUTS(num_warmup=400),
    "NUTS, diagonal": samplers.NUTS(num_warmup=400, dense=False),
}


def test_every_sampler_is_here():
    classes = {
        item
        for _, item in inspect.getmembers(samplers, inspect.isclass)
        if issubclass(item, samplers.AbstractSampler) and not inspect.isabstract(item)
    }
    assert classes == {type(sampler) for sampler in SAMPLERS.values()}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_moments_of_a_known_density(sampler, conjugate):
    shard = vcmc.split(conjugate.rows, 5).load(1)
    members = vcmc.split(conjugate.rows, 5).members[1]
    mean, covariance = conjugate.posterior(members, prior_power=0.2)
    density = Subposterior(conjugate.model, shard, jnp.asarray(0.2))
    points, _ = sampler.run(density, jnp.zeros(3), jax.random.key(1), 4000)
    sds = np.sqrt(np.diag(covariance))
    effective = array_stats.ess(points[None], chain_axis=0, draw_axis=1)
    assert (effective > 500).all()
    assert (np.abs(points.mean(axis=0) - mean) < 4 * sds / np.sqrt(effective)).all()
    # the sd of an sd from m Gaussian draws is sd / √(2m); squares mix more slowly than values
    squares = array_stats.ess((points[None] - mean) ** 2, chain_axis=0, draw_axis=1)
    assert (np.abs(points.std(axis=0) / sds - 1) < 4 / np.sqrt(2 * squares)).all()
    correlation = np.corrcoef(points.T)
    expected = covariance / np.outer(sds, sds)
    assert np.abs(correlation - expected).max() < 4 / np.sqrt(squares.min())


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_same_key_same_draws_and_blocks_do_not_matter(sampler, conjugate, monkeypatch):
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 5).load(0), jnp.asarray(0.2))
    steps = []
    first = sampler.run(density, jnp.zeros(3), jax.random.key(2), 150, steps.append)
    assert sum(steps) == sampler.num_warmup + 150
    monkeypatch.setattr(base, "BLOCK", 37)  # the driver's blocks; the compiled buffer is larger
    again = sampler.run(density, jnp.zeros(3), jax.random.key(2), 150)
    other = sampler.run(density, jnp.zeros(3), jax.random.key(3), 150)
    np.testing.assert_array_equal(first.points, again.points)
    for name, values in first.stats.items():
        np.testing.assert_array_equal(values, again.stats[name])
        assert values.shape == (150,)
    assert (first.points != other.points).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_warmup": -1}, "num_warmup of 0 or more"),
        ({"num_chains": 0}, "num_chains of 1 or more"),
        ({"target_accept": 1.0}, "between 0 and 1; got 1.0"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        samplers.NUTS(**arguments)
