"""Chains in a batch, against distributions whose moments are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.inference.ensemble import Goal, _Chains, run_chains
from vcmc.target import Target

SHAPE = 3.0


@pytest.fixture(scope="module")
def skewed():
    """Logarithms of three independent gamma variables, turned so that they correlate."""
    turn = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.7], [0.0, 0.0, 1.0]])
    back = jnp.asarray(np.linalg.inv(turn))

    def log_likelihood(params, rows):
        single = back @ params["theta"]
        return rows["one"] / 4 * jnp.sum(SHAPE * single - jnp.exp(single))

    model = vcmc.Model(
        {"theta": vcmc.Real(3)}, lambda params: 0.0 * jnp.sum(params["theta"]), log_likelihood
    )
    partition = vcmc.split({"one": np.ones(4)}, 2)
    target = Target(model, [partition.load(shard) for shard in range(2)], vcmc.executors.Local())
    mean = turn @ np.full(3, digamma(SHAPE))
    return target, mean, polygamma(1, SHAPE) * turn @ turn.T


@pytest.mark.slow
@pytest.mark.parametrize("off", [0.0, 3.0])
def test_chains_find_the_posterior_from_starts_near_and_far(off, skewed):
    target, mean, covariance = skewed
    starts = np.random.default_rng(0).multivariate_normal(mean + off, covariance, size=200)
    run = run_chains(target, starts, Goal(1000.0), seed=1)
    assert run.has_converged
    assert run.rhat < 1.01
    draws, sds = run.draws.reshape(-1, 3), np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * sds / np.sqrt(run.ess)).all()
    # their kurtosis is at most 6: an estimated sd has an error of at most sqrt(5 / 4 / ESS)
    assert (np.abs(draws.std(axis=0) / sds - 1) < 4 * 1.2 / np.sqrt(run.ess)).all()
    # skewness, which no Gaussian has: that of the third coordinate is known
    third = (draws[:, 2] - draws[:, 2].mean()) / draws[:, 2].std()
    exact = polygamma(2, SHAPE) / polygamma(1, SHAPE) ** 1.5
    assert np.mean(third**3) == pytest.approx(exact, abs=4 * np.sqrt(15 / run.ess))
    assert 0.6 < run.acceptance < 0.99
    assert run.num_evaluations < 32 * 100 * 10


def test_same_seed_same_draws(skewed):
    target, mean, covariance = skewed
    starts = np.random.default_rng(0).multivariate_normal(mean, covariance, size=100)
    first, again, other = (
        run_chains(target, starts, Goal(10.0), seed=seed).draws for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_run_that_did_not_settle_says_so(skewed):
    target, mean, covariance = skewed
    starts = np.random.default_rng(0).multivariate_normal(mean, covariance, size=100)
    run = run_chains(target, starts, Goal(1e9, max_iterations=60))
    assert not run.has_converged
    assert run.draws.shape == (32, 45, 3)


def test_starts_that_are_nowhere_finite_are_refused(skewed):
    def broken(points):
        return jnp.full(len(points), -jnp.inf), jnp.zeros(points.shape)

    target = skewed[0]
    nowhere = Target(target.model, target.shard_cache.partition, target.executor)
    nowhere.__class__ = type(
        "Nowhere", (Target,), {"__call__": lambda self, points: broken(points)}
    )
    with pytest.raises(ValueError, match="not finite at any of the combined draws"):
        run_chains(
            nowhere, np.zeros((50, 3)) + np.random.default_rng(0).normal(size=(50, 3)), Goal(10.0)
        )


def test_chains_that_do_not_move_get_shorter_steps_and_keep_their_coordinates(skewed):
    """Coordinates whitened by chains that hardly moved once froze all chains of a horseshoe."""
    target, mean, covariance = skewed
    starts = np.random.default_rng(0).multivariate_normal(mean, covariance, size=100)
    chains = _Chains(target, starts, np.random.default_rng(0))
    state = chains.initial_state(32)
    chains.positions = [starts[:32]] * 50
    chains.acceptances = [0.01] * 50
    before = chains.step_size.averaged
    after = chains.whitened_again(state, 1.3)
    np.testing.assert_array_equal(after.position, state.position)
    assert chains.step_size.current < before
    assert chains.num_warmup > 50  # which is adapted again


def ring():
    """A ring of radius 2 and width 0.1."""
    model = vcmc.Model(
        {"theta": vcmc.Real(2)},
        lambda params: 0.0 * params["theta"].sum(),
        lambda params, rows: rows["one"] * -50 * (jnp.linalg.norm(params["theta"]) - 2) ** 2,
    )
    return Target(model, vcmc.split({"one": np.ones(1)}, 1), vcmc.executors.Local())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_chains_that_start_on_a_part_of_a_ring_go_round(seed):
    """Their first coordinates are those of an arc. They need more than 500 iterations, or less."""
    angles = np.random.default_rng(0).normal(-0.7, 0.4, size=1000)
    starts = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    run = run_chains(ring(), starts, Goal(), seed)
    assert run.has_converged
    assert run.num_iterations <= 2000
    draws = run.draws.reshape(-1, 2)
    sds = np.sqrt((2**2 + 3 * 0.1**2) / 2)
    assert (np.abs(draws.mean(axis=0)) < 4 * sds / np.sqrt(run.ess)).all()
    np.testing.assert_allclose(draws.std(axis=0), sds, rtol=0.03)


def test_chains_far_from_each_other_end_after_500_iterations(monkeypatch):
    monkeypatch.setattr("vcmc.inference.ensemble.MAX_ITERATIONS", 50)
    monkeypatch.setattr("vcmc.inference.ensemble.MAX_CLOSE_ITERATIONS", 100)
    starts = np.array([[2.0, 0.0], [-2.0, 0.0]]) + 0.01 * np.random.default_rng(0).normal(
        size=(100, 1, 2)
    )
    far = run_chains(ring(), starts.reshape(-1, 2), Goal(1e9))
    assert (far.has_converged, far.num_iterations) == (False, 50)
