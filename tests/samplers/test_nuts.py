import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import NUTS


def test_step_size_and_metric_are_frozen_after_warm_up(conjugate):
    density = Subposterior(
        conjugate.model, vcmc.split(conjugate.rows, 4).load(0), jnp.asarray(0.25)
    )
    chain = NUTS(num_warmup=200).run(density, jnp.zeros(3), jax.random.key(0), 100)
    assert len(np.unique(chain.stats["step_size"])) == 1
    assert 0.6 < chain.stats["acceptance_rate"].mean() < 0.99


def test_no_warm_up_at_all(conjugate):
    density = Subposterior(
        conjugate.model, vcmc.split(conjugate.rows, 4).load(0), jnp.asarray(0.25)
    )
    chain = NUTS(num_warmup=0).run(density, jnp.zeros(3), jax.random.key(0), 5)
    assert chain.points.shape == (5, 3)


def test_chains_start_at_a_draw_of_the_normal_approximation(conjugate):
    """Not all at one point, and not at the common start."""
    partition = vcmc.split(conjugate.rows, 4)
    density = Subposterior(conjugate.model, partition.load(0), jnp.asarray(0.25))
    mean, covariance = conjugate.posterior(partition.members[0], prior_power=0.25)
    start = jnp.asarray(mean + 2 * np.sqrt(np.diag(covariance)))
    states = [NUTS().init(density, start, jax.random.key(seed)) for seed in range(50)]
    np.testing.assert_allclose(states[0].centre, mean, atol=1e-6)
    white = np.stack([state.position.position for state in states])
    assert (np.abs(white.mean(axis=0)) < 4 / np.sqrt(50)).all()
    assert (np.abs(white.std(axis=0) - 1) < 4 / np.sqrt(100)).all()


def test_a_start_that_is_too_unlikely_is_moved_towards_the_centre():
    """Beyond half an sd to the right, the log density falls steeply."""

    def log_likelihood(params, rows):
        theta = params["theta"]
        return -0.5 * theta**2 - 1e6 * jnp.maximum(theta - 0.5, 0) ** 2 + 0 * rows["y"]

    model = vcmc.Model({"theta": vcmc.Real()}, lambda params: 0.0 * params["theta"], log_likelihood)
    density = Subposterior(model, vcmc.split({"y": np.zeros(1)}, 1).load(0), jnp.asarray(1.0))
    for seed in range(10):
        state = NUTS().init(density, jnp.zeros(1), jax.random.key(seed))
        assert float(state.position.position[0]) < 0.51


@pytest.mark.slow
@pytest.mark.parametrize("whiten", [False, True])
def test_moments_of_a_known_density(whiten, conjugate):
    shard = vcmc.split(conjugate.rows, 5).load(1)
    mean, covariance = conjugate.posterior(
        vcmc.split(conjugate.rows, 5).members[1], prior_power=0.2
    )
    density = Subposterior(conjugate.model, shard, jnp.asarray(0.2))
    points, _ = NUTS(num_warmup=400, whiten=whiten).run(
        density, jnp.zeros(3), jax.random.key(1), 4000
    )
    sds = np.sqrt(np.diag(covariance))
    effective = array_stats.ess(points[None], chain_axis=0, draw_axis=1)
    assert (effective > 500).all()
    assert (np.abs(points.mean(axis=0) - mean) < 4 * sds / np.sqrt(effective)).all()
    # the sd of an sd from m Gaussian draws is sd / √(2m); squares mix more slowly than values
    squares = array_stats.ess((points[None] - mean) ** 2, chain_axis=0, draw_axis=1)
    assert (np.abs(points.std(axis=0) / sds - 1) < 4 / np.sqrt(2 * squares)).all()
    expected = covariance / np.outer(sds, sds)
    assert np.abs(np.corrcoef(points.T) - expected).max() < 4 / np.sqrt(squares.min())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_warmup": -1}, "num_warmup must be an integer of at least 0; got -1"),
        ({"num_chains": 0}, "num_chains must be an integer of at least 1; got 0"),
        ({"target_accept": 1.0}, "between 0 and 1; got 1.0"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        NUTS(**arguments)
