"""Pareto-smoothed weights: those of ArviZ, used the right way round."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from vcmc.diagnostics.importance import pareto_k, smoothed_weights


def test_weights_follow_the_ratios():
    ratios = 0.3 * np.random.default_rng(0).exponential(size=2000)
    weights, shape = smoothed_weights(ratios)
    np.testing.assert_allclose(weights.sum(), 1)
    assert np.corrcoef(np.log(weights), ratios)[0, 1] > 0.999
    # ratios exp(0.3 e) with e exponential have a Pareto tail of shape 0.3; its estimate from 2 000
    # has an sd of about 0.1
    assert abs(shape - 0.3) < 0.3


def test_heavy_tails_are_seen():
    generator = np.random.default_rng(1)
    assert pareto_k(1.5 * generator.exponential(size=2000)) > 0.7
    assert pareto_k(np.zeros(500) + 1e-3 * generator.normal(size=500)) < 0.5


@pytest.mark.parametrize("scale", [100.0, 1e3, 1e5])
def test_ratios_that_overflow_are_not_trusted(scale):
    weights, shape = smoothed_weights(scale * np.random.default_rng(0).normal(size=500))
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(), 1)
    assert shape > 0.7


def test_points_outside_the_support_get_no_weight():
    ratios = 0.3 * np.random.default_rng(0).exponential(size=500)
    ratios[::10] = -np.inf
    weights, shape = smoothed_weights(ratios)
    assert (weights[::10] == 0).all()
    assert shape < 0.7
    weights, shape = smoothed_weights(np.where(np.arange(500) < 450, -np.inf, ratios))
    assert np.isfinite(weights).all()
    assert shape > 0.7  # most of the tail is missing


@pytest.mark.parametrize("count", [25, 225, 226, 2000])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_they_are_those_of_arviz(scale, count):
    ratios = scale * np.random.default_rng(count).normal(size=count)
    log_weights, expected_shape = array_stats.psislw(-ratios)  # it expects log likelihoods
    weights, shape = smoothed_weights(ratios)
    np.testing.assert_allclose(weights, np.exp(log_weights), rtol=1e-8)
    np.testing.assert_allclose(shape, expected_shape, rtol=1e-8)
