"""Short ascents: to the top of one hill, and elsewhere where there is another."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.diagnostics.mode_ascents import ascend, astray
from vcmc.diagnostics.mode_search import find_modes
from vcmc.linalg.whitening import Whitening

DIM = 10


def direction(dim):
    """Return a unit vector that is on no axis."""
    vector = np.random.default_rng(3).normal(size=dim)
    return vector / np.linalg.norm(vector)


def around(mean, covariance):
    return Whitening(mean, Whitening.from_curvature(mean, np.linalg.inv(covariance)).root)


def wide_draws(mixture, mode, num_shards):
    """Draws of shards that are around one mode."""
    covariance = num_shards * mixture.covariances[mode]
    return np.random.default_rng(0).multivariate_normal(mixture.means[mode], covariance, 400)


@pytest.mark.parametrize("width", [0.7, 1.0, 1.4])
def test_ascents_on_one_hill_arrive(width, normal_mixture):
    """Even if its width is known roughly."""
    covariance = np.diag(np.geomspace(0.01, 100, DIM))
    mixture = normal_mixture([1.0], [np.ones(DIM)], [covariance])
    whitening = around(np.ones(DIM), width**2 * covariance)
    assert not len(astray(whitening, mixture.target(4), wide_draws(mixture, 0, 4), seed=0))


def test_draws_on_another_hill_lead_to_its_top(normal_mixture):
    """Along the ray from one top to a draw near the other, the log density falls throughout."""
    means = [np.zeros(DIM), 7 * direction(DIM)]
    mixture = normal_mixture([0.5, 0.5], means, [np.eye(DIM)] * 2)
    target, points = mixture.target(10), wide_draws(mixture, 1, 10)[:50]
    _, scores = (np.asarray(part) for part in target(jnp.asarray(points)))
    assert np.mean(np.sum(scores * points, axis=1) < 0) > 0.8
    ends = ascend(points, around(means[0], np.eye(DIM)), target)
    near = np.linalg.norm(ends - means[1], axis=1) < 0.5
    assert near.mean() > 0.9
    assert len(ends) > 20


def test_a_spike_near_the_top_is_above_it(normal_mixture):
    mixture = normal_mixture(
        [0.4, 0.6], [[1.0, 1.0], [0.0, 0.0]], [0.01 * np.eye(2), 4 * np.eye(2)]
    )
    target, draws = mixture.target(1), wide_draws(mixture, 1, 1)
    ends = astray(around(np.zeros(2), 4 * np.eye(2)), target, draws, seed=0)
    assert len(ends)
    np.testing.assert_allclose(ends[0], 1.0, atol=0.05)


@pytest.mark.parametrize("num_shards", [1, 10])
def test_a_small_mode_on_no_axis_is_found(num_shards, normal_mixture):
    means = [np.zeros(8), 9 * direction(8)]
    mixture = normal_mixture([0.85, 0.15], means, [np.eye(8), 0.5 * np.eye(8)])
    draws = wide_draws(mixture, 0, num_shards)
    found = find_modes(mixture.target(num_shards), around(means[0], np.eye(8)), draws, seed=0)
    np.testing.assert_allclose(found.shares, [0.85, 0.15], atol=1e-3)


@pytest.mark.parametrize("distance", [40.0, 200.0])
@pytest.mark.parametrize("num_rows", [60, 20_000])
def test_a_small_mode_very_far_away_is_found(num_rows, distance, normal_mixture):
    means = [np.zeros(6), distance * direction(6)]
    mixture = normal_mixture([0.99, 0.01], means, [np.eye(6)] * 2, num_rows)
    draws = wide_draws(mixture, 0, 8)
    found = find_modes(mixture.target(8), around(means[0], np.eye(6)), draws, seed=0)
    np.testing.assert_allclose(found.shares, [0.99, 0.01], atol=1e-3)


def test_no_point_is_finite(normal_mixture):
    mixture = normal_mixture([1.0], [[0.0, 0.0]], [np.eye(2)])
    points = np.full((3, 2), 1e200)
    assert len(ascend(points, around(np.zeros(2), np.eye(2)), mixture.target(1))) == 0
