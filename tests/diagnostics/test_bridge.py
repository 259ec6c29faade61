"""Integrals of densities with known constants."""

import numpy as np
import pytest
from scipy import stats

from vcmc.diagnostics.bridge import bridge_estimate, importance_estimate

LOG_Z = 7.0
POSTERIOR, PROPOSAL = stats.gamma(4.0), stats.norm(4.0, 2.5)


def log_ratios(points):
    return POSTERIOR.logpdf(points) + LOG_Z - PROPOSAL.logpdf(points)


def estimates(seed, count=1000):
    generator = np.random.default_rng(seed)
    at_proposals = log_ratios(PROPOSAL.rvs(count, random_state=generator))
    at_draws = log_ratios(POSTERIOR.rvs(count, random_state=generator))
    importance, _ = importance_estimate(at_proposals)
    return importance, bridge_estimate(at_draws, at_proposals, count)


def test_both_estimates_cover_the_integral_as_their_standard_errors_say():
    errors = np.array(
        [
            [(part.value - LOG_Z) / part.standard_error for part in estimates(seed)]
            for seed in range(200)
        ]
    )
    # 200 standard normals: mean within 4.5 / √200, sd within 4.5 / √400
    np.testing.assert_allclose(errors.mean(axis=0), np.zeros(2), atol=4.5 / np.sqrt(200))
    np.testing.assert_allclose(errors.std(axis=0), np.ones(2), atol=4.5 / np.sqrt(400))


def test_bridge_sampling_is_the_more_precise():
    importance, bridge = estimates(0)
    assert bridge.standard_error < importance.standard_error


def test_draws_of_the_posterior_itself_have_no_error():
    ratios = np.full(100, LOG_Z)
    importance, shape = importance_estimate(ratios)
    assert (importance.value, importance.standard_error) == pytest.approx((LOG_Z, 0.0))
    assert shape == 0.0
    assert bridge_estimate(ratios, ratios, 50.0) == pytest.approx((LOG_Z, 0.0))


def test_ratios_that_are_all_zero_have_no_estimate():
    nothing = np.full(100, -np.inf)
    importance, shape = importance_estimate(nothing)
    assert importance.standard_error == np.inf
    assert shape == np.inf
