"""Draws near a mode, and the mode's mass, on mixtures of normals."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.combiners import Subposteriors
from vcmc.combiners.mode_parts import near_draws, part_near
from vcmc.diagnostics.mode_regions import ModeRegions

NUM_SHARDS = 4


@pytest.fixture
def regions(two_normals):
    precisions = np.linalg.inv(two_normals.covariances)
    return ModeRegions(two_normals.means, precisions, np.log(two_normals.weights))


def shards_of(mixture, mode):
    """Draws of shards around a mode: as many times as wide as there are shards."""
    root = np.sqrt(NUM_SHARDS) * np.linalg.cholesky(mixture.covariances[mode])
    noise = np.random.default_rng(mode).normal(size=(NUM_SHARDS, 300, 2))
    return mixture.means[mode] + noise @ root.T


def test_a_shard_without_draws_near_a_mode_gets_those_of_the_modes_gaussian(two_normals, regions):
    far = shards_of(two_normals, 0)[0] - 30.0
    near = near_draws(far, regions, 1, NUM_SHARDS, np.random.default_rng(0))
    expected = NUM_SHARDS * two_normals.covariances[1]
    spread = np.sqrt(np.diag(expected) / len(near))
    assert (np.abs(near.mean(axis=0) - two_normals.means[1]) < 4 * spread).all()
    variances = np.var(near, axis=0) / np.diag(expected)
    assert (np.abs(variances - 1) < 4 * np.sqrt(2 / len(near))).all()


@pytest.mark.parametrize("mode", [0, 1])
def test_the_mass_of_a_part_is_its_weight(two_normals, regions, mode):
    """The posterior is normalized, and so the masses are the weights themselves."""
    target = two_normals.target(NUM_SHARDS)
    draws = jnp.asarray(shards_of(two_normals, mode))
    shards = Subposteriors(draws, target.model.space, target, num_posterior_draws=2000)
    part = part_near(shards, target, regions, mode, budget=5000, goal=1000)
    error = part.log_mass.standard_error
    assert error < 0.05
    assert abs(part.log_mass.value - np.log(two_normals.weights[mode])) < 4 * error
    assert not part.exact  # it is Gaussian
    taken, source = part.take(700, np.random.default_rng(0))
    assert (taken.shape, source.num_independent) == ((700, 2), 700)
    np.testing.assert_allclose(taken.mean(axis=0), two_normals.means[mode], atol=0.02)
