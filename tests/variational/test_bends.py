"""Learned bends: closed forms of a banana, a funnel and a log-gamma density."""

import numpy as np
import pytest
from scipy.special import gammaln

from vcmc.variational.bends import BentFit, fit_bend, lack_bends, orders

WIDTH = 0.2  # of the ridge
SHAPE = 1 / 3  # of a gamma distribution


class Banana:
    """A normal coordinate, and one that follows its square."""

    log_integral = np.log(2 * np.pi * WIDTH)

    def __call__(self, points):
        first, second = np.asarray(points).T
        rest = (first - second**2) / WIDTH
        scores = np.stack([-rest / WIDTH, -second + 2 * second * rest / WIDTH], axis=1)
        return -0.5 * (rest**2 + second**2), scores


class Funnel:
    """A normal coordinate whose exponential is the scale of another."""

    log_integral = np.log(2 * np.pi)

    def __call__(self, points):
        first, second = np.asarray(points).T
        rest = second * np.exp(-first)
        scores = np.stack([-first + rest**2 - 1, -rest * np.exp(-first)], axis=1)
        return -0.5 * (first**2 + rest**2) - first, scores


class LogGamma:
    """The logarithm of a gamma variable of small shape: a spike at zero."""

    log_integral = gammaln(SHAPE)

    def __call__(self, points):
        points = np.asarray(points)
        return SHAPE * points[:, 0] - np.exp(points[:, 0]), SHAPE - np.exp(points)


def best_fit(target, draws):
    """The better map of all orders that are tried."""
    points = draws[:200]
    fits = [
        fit_bend(draws, order, target, np.random.default_rng(0))
        for order in orders(draws, points, target(points)[1])
    ]
    return max(fits, key=lambda fit: fit.objective)


@pytest.mark.parametrize(
    ("target", "mean", "sds", "order"),
    [
        (Banana(), [0.5, 0.0], [0.3, 0.4], (1, 0)),
        (Funnel(), [0.0, 0.0], [0.7, 0.7], (0, 1)),
        (LogGamma(), [-2.0], [2.0], (0,)),
    ],
    ids=["banana", "funnel", "log-gamma"],
)
def test_a_map_comes_close_to_a_bent_target(target, mean, sds, order):
    generator = np.random.default_rng(1)
    draws = np.array(mean) + np.array(sds) * generator.normal(size=(1000, len(mean)))
    fit = best_fit(target, draws)
    assert fit.is_better
    assert fit.map.order == order
    # the objective is the log integral less the divergence, up to the error of 256 base points
    assert fit.objective == pytest.approx(target.log_integral, abs=0.05)


def test_nothing_is_missing_where_draws_are_right():
    generator = np.random.default_rng(2)
    second = generator.normal(size=5000)
    exact = np.stack([second**2 + WIDTH * generator.normal(size=5000), second], axis=1)
    # the scores of a thin ridge are steep: of normal draws, those along it show the bend
    normal = 0.3 * generator.normal(size=(5000, 2)) * [0.5, 1.0]
    assert lack_bends(normal, normal[:256], Banana()(normal[:256])[1])
    gaussian = generator.normal(size=(5000, 2))
    assert not lack_bends(gaussian, gaussian[:256], -gaussian[:256])
    scores = Banana()(exact[:256])[1].copy()
    scores[0] = np.nan
    assert lack_bends(exact, exact[:256], scores)


def test_skewed_draws_of_a_skewed_target_lack_nothing():
    generator = np.random.default_rng(3)
    draws = np.log(generator.gamma(20.0, size=(50_000, 2)))
    assert not lack_bends(draws, draws[:5000], 20.0 - np.exp(draws[:5000]))


def test_an_affine_map_is_kept_where_nothing_is_gained():
    def target(points):
        points = np.asarray(points)
        return -0.5 * np.sum(points**2, axis=1), -points

    draws = np.random.default_rng(4).normal(size=(5000, 2))
    fit = fit_bend(draws, (0, 1), target, np.random.default_rng(0))
    assert not fit.is_better


def test_a_target_that_is_nowhere_finite_is_no_gain():
    def target(points):
        return np.full(len(points), -np.inf), np.full(np.shape(points), np.nan)

    draws = np.random.default_rng(5).normal(size=(500, 2))
    fit = fit_bend(draws, (0, 1), target, np.random.default_rng(0))
    assert isinstance(fit, BentFit)
    assert not fit.is_better
