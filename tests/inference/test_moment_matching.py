"""Moment matching, against closed forms of normal densities."""

import numpy as np
import pytest
from scipy.stats import norm

from vcmc.inference.moment_matching import Posterior, match_moments

NUM_DRAWS = 4000


def normal_posterior(dim=3, seed=0):
    """Return a standard normal posterior, and draws of it."""

    def log_density(points):
        return -0.5 * np.sum(points**2, axis=1) - 7.0  # not normalized

    points = np.random.default_rng(seed).normal(size=(NUM_DRAWS, dim))
    return Posterior(points, log_density(points), log_density, 1.0)


@pytest.mark.parametrize(("sd", "value"), [(1.2, 4.0), (1.1, 12.0), (1.02, 1.0), (5.0, 2.0)])
def test_a_row_is_predicted_by_the_posterior_without_it(sd, value):
    """A row that is normal around the first coordinate, whose variance is then 1 / (1 - sd⁻²)."""

    def log_likelihood(points):
        return norm.logpdf(value, points[:, 0], sd)

    variance = 1 / (1 - sd**-2)
    mean = -variance * value / sd**2
    exact = norm.logpdf(value, mean, np.sqrt(variance + sd**2))
    result = match_moments(normal_posterior(), log_likelihood)
    assert result.k < 0.7
    # weights have an sd of about 1, so that the estimate's is about sqrt(2 / 4000) = 0.022
    assert result.elpd == pytest.approx(exact, abs=0.09)
    with_row = norm.logpdf(value, 0, np.sqrt(1 + sd**2))
    log_mean = np.log(np.mean(np.exp(log_likelihood(normal_posterior().points))))
    assert result.log_mean == pytest.approx(log_mean, rel=1e-10)
    if value < 3:
        assert result.log_mean == pytest.approx(with_row, abs=0.09)


def test_a_row_without_which_there_is_no_posterior_keeps_a_large_k():
    """Without the row the density grows without bound in one direction."""

    def log_likelihood(points):
        return norm.logpdf(1.0, points[:, 0], 0.7)

    assert match_moments(normal_posterior(), log_likelihood).k > 0.7


def test_moved_draws_outside_the_support_have_no_weight():
    """The density is not a number below -6 in the first coordinate, where some draws are moved."""
    plain = normal_posterior()

    def log_density(points):
        return np.where(points[:, 0] < -6, np.nan, plain.log_density(points))

    def log_likelihood(points):
        return norm.logpdf(4.0, points[:, 0], 1.2)

    result = match_moments(plain._replace(log_density=log_density), log_likelihood)
    assert np.isfinite([result.elpd, result.log_mean]).all()
