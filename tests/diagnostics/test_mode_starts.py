"""Starts of searches: none where there is one hill, some on the slope of another."""

import numpy as np

from vcmc.diagnostics.mode_starts import distant_draws, images, outward_on_axes, outward_on_rays
from vcmc.linalg.whitening import Whitening

ENDS = np.array([[5.0, 5.0], [-3.0, 8.0]])


def around(mixture, mode):
    draws = np.random.default_rng(0).multivariate_normal(
        mixture.means[mode], mixture.covariances[mode], 400
    )
    return Whitening.from_draws(draws)


def test_one_hill_has_no_outward_points(normal_mixture):
    one = normal_mixture([1.0], [[0.0, 0.0]], [np.eye(2)])
    whitening = around(one, 0)
    assert len(outward_on_rays(np.zeros(2), whitening, one.target(4), ENDS, seed=0)) == 0
    assert len(outward_on_axes(whitening, one.target(4), seed=0)) == 0


def test_a_second_hill_has_outward_points_nearer_to_it(two_normals):
    points = outward_on_rays(
        two_normals.means[0], around(two_normals, 0), two_normals.target(4), ENDS, seed=0
    )
    distances = np.linalg.norm(points[:, None] - two_normals.means, axis=2)
    assert (distances[:, 1] < distances[:, 0]).any()


def test_distant_draws_are_far_apart(two_normals):
    draws = two_normals.draws(500)
    chosen = distant_draws(draws, Whitening.from_draws(draws), count=4)
    gaps = np.linalg.norm(chosen[:, None] - chosen, axis=2)[np.triu_indices(4, 1)]
    assert gaps.min() > 2
    assert len(distant_draws(draws[:3], Whitening.from_draws(draws), count=10)) == 3


def test_images_are_as_high_as_the_mode(normal_mixture):
    """Modes at (1, 4) and (4, 1): swapped, but not with a sign changed."""
    both = normal_mixture([0.5, 0.5], [[1.0, 4.0], [4.0, 1.0]], [0.01 * np.eye(2)] * 2)
    target, top = both.target(2), both.means[0]
    height = float(np.asarray(target(top[None])[0])[0])
    found = images(top, both.model.space, target, height, seed=0)
    np.testing.assert_array_equal(found, [[4.0, 1.0]])
