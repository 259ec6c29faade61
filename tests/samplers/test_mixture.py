"""The mixture that chains jump by: its density, and its draws."""

import numpy as np
import pytest

from vcmc.samplers.mixture import ModeMixture


@pytest.fixture
def mixture():
    precisions = np.stack([np.eye(1), 4 * np.eye(1)])
    return ModeMixture.around(np.array([[-5.0], [5.0]]), precisions, np.array([0.2, 0.6]))


def test_the_density_integrates_to_one(mixture):
    grid = np.linspace(-60, 60, 20_001)[:, None]
    density = np.exp(mixture.log_density(grid))
    assert density.sum() * (grid[1] - grid[0])[0] == pytest.approx(1, abs=1e-4)


def test_draws_have_the_weights_and_the_centres(mixture):
    draws = mixture.draw(20_000, np.random.default_rng(0))[:, 0]
    standard_error = np.sqrt(0.25 * 0.75 / 20_000)
    assert abs(np.mean(draws < 0) - 0.25) < 4 * standard_error
    right = draws[draws > 0]
    # sd 1/2 of six degrees of freedom: 1/2 √(6/4)
    assert abs(right.mean() - 5) < 4 * right.std() / np.sqrt(len(right))
    assert right.std() == pytest.approx(0.5 * np.sqrt(1.5), rel=0.1)


def test_draws_from_given_modes_are_near_them(mixture):
    draws = mixture.draw_from([0, 1, 0], np.random.default_rng(0))
    assert np.sign(draws[:, 0]).tolist() == [-1, 1, -1]
