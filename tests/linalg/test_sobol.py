"""Evenly spaced points: their error falls faster than that of random ones."""

import numpy as np
import pytest

from vcmc.linalg.sobol import latin_points, sobol_points

NUM_SEEDS = 20


@pytest.mark.parametrize("count", [256, 1000])
@pytest.mark.parametrize("dim", [2, 6])
def test_means_are_closer_than_those_of_random_points(count, dim):
    points = np.array(
        [sobol_points(count, dim, np.random.default_rng(seed)) for seed in range(NUM_SEEDS)]
    )
    squares = np.mean(points**2, axis=1) - 1 / 3
    assert np.mean(squares**2) < (1 / 5 - 1 / 9) / count / 1000
    products = np.mean((points[..., 0] - 0.5) * (points[..., 1] - 0.5), axis=1)
    assert np.mean(products**2) < 1 / 144 / count / 10


def test_points_are_inside_the_cube_and_follow_the_seed():
    points = sobol_points(500, 3, np.random.default_rng(1))
    assert points.shape == (500, 3)
    assert ((points > 0) & (points < 1)).all()
    np.testing.assert_array_equal(points, sobol_points(500, 3, np.random.default_rng(1)))
    assert not np.allclose(points, sobol_points(500, 3, np.random.default_rng(2)))


def test_a_latin_hypercube_has_one_point_in_every_part_of_every_axis():
    points = latin_points(300, 7, np.random.default_rng(0))
    assert points.shape == (300, 7)
    assert ((points > 0) & (points < 1)).all()
    parts = np.sort(np.floor(300 * points), axis=0)
    np.testing.assert_array_equal(parts, np.tile(np.arange(300.0), (7, 1)).T)
    assert np.abs(np.corrcoef(points.T) - np.eye(7)).max() < 0.25
    assert latin_points(0, 3, np.random.default_rng(0)).shape == (0, 3)
