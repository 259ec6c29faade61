"""Marginal shapes from scores: known skewed marginals, and Gaussian ones that stay as they are."""

import numpy as np
import pytest
from scipy.special import digamma, polygamma
from scipy.stats import gamma

from vcmc.variational.marginal_shapes import MAX_MOVE, shape_draws

SHAPE = 3.0  # of a gamma distribution, whose logarithm is skewed to the left by 0.69
NUM_DRAWS = 5000
SLOPE = 0.7  # of the second coordinate on the first


class LogGamma:
    """The logarithm of a gamma variable, and a normal one that is correlated with it."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, points):
        self.num_calls += 1
        first, second = np.asarray(points).T
        rest = second - SLOPE * first
        values = SHAPE * first - np.exp(first) - 0.5 * rest**2
        return values, np.stack([SHAPE - np.exp(first) + SLOPE * rest, -rest], axis=1)


def normal_draws(seed):
    """Return normal draws with the mean and the covariance of the target."""
    generator = np.random.default_rng(seed)
    first = digamma(SHAPE) + np.sqrt(polygamma(1, SHAPE)) * generator.normal(size=NUM_DRAWS)
    return np.stack([first, SLOPE * first + generator.normal(size=NUM_DRAWS)], axis=1)


def shaped_by(target, draws, num_points=128):
    """Return the draws with the target's shapes; its scores at some of them are known."""
    points = draws[:num_points]
    return shape_draws(draws, points, target(points)[1], target, seed=0)


def test_draws_get_the_quantiles_of_a_skewed_target():
    target, draws = LogGamma(), normal_draws(0)
    sd = np.sqrt(polygamma(1, SHAPE))
    exact = np.log(gamma.ppf([0.05, 0.5, 0.95], SHAPE))
    before = np.abs(np.quantile(draws[:, 0], [0.05, 0.5, 0.95]) - exact) / sd
    shaped = shaped_by(target, draws)
    after = np.abs(np.quantile(shaped[:, 0], [0.05, 0.5, 0.95]) - exact) / sd
    assert before.max() > 0.1
    # a polynomial in place of an exponential function, fitted to 512 scores at most
    assert after.max() < 2 * MAX_MOVE
    assert shaped[:, 0].mean() == pytest.approx(digamma(SHAPE), abs=0.03 * sd)
    assert shaped[:, 0].std() == pytest.approx(sd, rel=0.03)


def test_other_coordinates_follow_by_regression():
    shaped = shaped_by(LogGamma(), normal_draws(0))
    covariance = np.cov(shaped.T)
    assert covariance[0, 1] / covariance[0, 0] == pytest.approx(SLOPE, abs=4 / NUM_DRAWS**0.5)
    rest = shaped[:, 1] - SLOPE * shaped[:, 0]
    assert rest.std() == pytest.approx(1, rel=4 / np.sqrt(2 * NUM_DRAWS))


def test_order_along_a_coordinate_is_kept():
    draws = normal_draws(0)[:, :1]

    def target(points):
        first = np.asarray(points)[:, 0]
        return SHAPE * first - np.exp(first), (SHAPE - np.exp(first))[:, None]

    shaped = shaped_by(target, draws)
    assert (np.argsort(shaped[:, 0]) == np.argsort(draws[:, 0])).all()


def test_draws_with_the_right_shape_stay_and_cost_nothing():
    generator = np.random.default_rng(0)
    right = np.log(generator.gamma(SHAPE, size=NUM_DRAWS))
    right = np.stack([right, SLOPE * right + generator.normal(size=NUM_DRAWS)], axis=1)
    target = LogGamma()
    assert shaped_by(target, right, 64) is right
    assert target.num_calls == 1
    other = normal_draws(1)
    assert shaped_by(LogGamma(), other, 64) is not other


def test_points_are_as_many_as_quantiles_need():
    sizes = []

    def target(points):
        sizes.append(len(points))
        return LogGamma()(points)

    shaped_by(target, normal_draws(0))
    assert sizes[0] == 128
    assert len(sizes) > 1
    assert all(128 <= size <= 512 for size in sizes[1:])


def test_gaussian_draws_of_a_gaussian_target_stay():
    root = np.array([[1.0, 0.0], [0.8, 0.6]])
    draws = np.random.default_rng(2).normal(size=(NUM_DRAWS, 2)) @ root.T
    precision = np.linalg.inv(root @ root.T)

    def target(points):
        points = np.asarray(points)
        scores = -points @ precision
        return 0.5 * np.sum(points * scores, axis=1), scores

    assert shaped_by(target, draws, 64) is draws


def test_scores_that_are_not_finite_end_the_passes():
    draws, target = normal_draws(3), LogGamma()
    points = draws[:128]
    scores = target(points)[1]

    def infinite(points):
        return np.zeros(len(points)), np.full(np.shape(points), np.inf)

    assert shape_draws(draws, points, scores, infinite, seed=0) is draws
    assert shape_draws(draws, points, np.full_like(points, np.nan), target, seed=0) is draws
