"""Errors that a surrogate causes in a result, against what they are in truth."""

import numpy as np
import pytest

from vcmc.diagnostics.selfcheck import Errors
from vcmc.diagnostics.surrogate_errors import (
    NUM_PERTURBATIONS,
    OldPosterior,
    WeightedStatistics,
    sensitivity,
)
from vcmc.models.surrogate import Surrogate

NUM_DRAWS = 4000


def old_posterior(draws, generator, errors=None):
    return OldPosterior.of(draws, draws, errors, float(len(draws)), generator)


def updated_normal(old, likelihood_mean, generator):
    """Return draws of a normal posterior from the moments of draws, with unit likelihood."""
    precision = np.linalg.inv(np.cov(old.T).reshape(old.shape[1], -1))
    covariance = np.linalg.inv(precision + np.eye(old.shape[1]))
    mean = covariance @ (precision @ old.mean(axis=0) + likelihood_mean)
    return mean, generator.multivariate_normal(mean, covariance, size=NUM_DRAWS)


def errors_of(dim, mean=0.0, mean_se=0.0, sd=0.0, sd_se=0.0):
    values = [mean, mean_se, sd, sd_se, 0.0, 0.0, 0.0, 0.0]
    return Errors(*(np.full(dim, value) for value in values))


def test_weighted_statistics_are_those_of_the_weighted_draws():
    generator = np.random.default_rng(0)
    values = generator.normal(size=(20_000, 1))
    statistics = WeightedStatistics.of(values)
    # weights of a normal with mean 1/2: the tail of the weights costs a fifth of the draws
    changes, share = statistics.changes(0.5 * values[:, 0])
    np.testing.assert_allclose(changes[:, 0], [0.5, 0.0, 0.5, 0.5], atol=0.05)
    assert 0.7 < share < 0.85
    first_order = statistics.response(0.5 * values[:, 0])
    np.testing.assert_allclose(first_order[:, 0], [0.5, 0.0, 0.5, 0.5], atol=0.05)
    constant = WeightedStatistics.of(np.ones((100, 1))).changes(np.arange(100.0))[0]
    assert np.abs(constant).max() < 1e-6 or not constant.any()


def test_errors_beyond_chance_are_corrected_and_others_kept_as_uncertainty():
    generator = np.random.default_rng(1)
    draws = generator.normal(size=(NUM_DRAWS, 2)) * [1.0, 3.0]
    old = old_posterior(draws, generator, errors_of(2, mean=0.2, mean_se=0.02, sd=0.1, sd_se=0.01))
    np.testing.assert_allclose(
        old.draws.mean(axis=0), draws.mean(axis=0) - 0.2 * draws.std(axis=0), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(old.draws.std(axis=0), draws.std(axis=0) / 1.1, rtol=1e-9)
    assert old.shifts.shape == (NUM_PERTURBATIONS, 2)
    np.testing.assert_allclose(old.shifts.std(axis=0), 0.02 * draws.std(axis=0), rtol=0.5)
    chance = old_posterior(draws, generator, errors_of(2, mean=0.01, mean_se=0.02))
    np.testing.assert_allclose(chance.draws, draws, atol=1e-12)


def test_errors_of_transformed_quantities_are_those_of_coordinates():
    generator = np.random.default_rng(2)
    draws = 0.05 * generator.normal(size=(NUM_DRAWS, 1)) + 1
    values = np.exp(draws)  # nearly linear, of which mean and sd are known to be off
    errors = errors_of(1, mean=0.5, mean_se=0.01)
    old = OldPosterior.of(draws, values, errors, float(NUM_DRAWS), generator)
    shift = (old.draws.mean() - draws.mean()) / draws.std()
    assert abs(shift + 0.5) < 0.01


@pytest.mark.parametrize("dim", [1, 3])
def test_standard_errors_of_chance_cover(dim):
    generator = np.random.default_rng(3)
    ratios = []
    for _ in range(20):
        draws = generator.normal(size=(1000, dim))
        old = old_posterior(draws, generator)
        surrogate = old.fitted()
        likelihood_mean = np.ones(dim)
        true_mean = likelihood_mean / 2  # of a standard normal and a unit likelihood
        mean, points = updated_normal(draws, likelihood_mean, generator)
        found = sensitivity(old, surrogate, points, points)
        assert found.is_determined
        errors = (mean - true_mean) / np.sqrt(0.5)
        ratios.append(errors / np.sqrt(found.variances[0]))
    # the root mean square of 20 ratios or more: 1 in truth, up to 1.5 by chance
    assert 0.4 < np.sqrt(np.mean(np.square(ratios))) < 1.5


def test_known_errors_of_the_old_draws_are_passed_on():
    generator = np.random.default_rng(4)
    draws = generator.normal(size=(NUM_DRAWS, 1))
    _, points = updated_normal(draws, np.zeros(1), generator)
    small = sensitivity(*_with_errors(draws, generator, 0.0), points, points)
    large = sensitivity(*_with_errors(draws, generator, 0.2), points, points)
    # of an old mean that is off by 0.2 sd, half remains, in sds that are 0.7 times the old ones
    increase = np.sqrt(large.variances[0] - small.variances[0])
    np.testing.assert_allclose(increase, 0.2 / 2**0.5, rtol=0.5)


def _with_errors(draws, generator, mean_se):
    old = old_posterior(draws, generator, errors_of(1, mean_se=mean_se))
    return old, old.fitted()


def test_a_curve_that_no_map_describes_is_seen_where_new_rows_lead():
    generator = np.random.default_rng(5)
    first = generator.normal(size=NUM_DRAWS)
    draws = np.stack([first, 0.5 * first**2 + 0.3 * generator.normal(size=NUM_DRAWS)], axis=1)
    old = old_posterior(draws, generator)
    surrogate = Surrogate.fitted(draws, NUM_DRAWS)
    points = draws[np.abs(first - 1.5) < 0.5]
    found = sensitivity(old, surrogate, points, points)
    assert found.variances[0].max() > 0.1**2


def test_densities_that_differ_too_much_are_not_determined():
    generator = np.random.default_rng(6)
    draws = generator.normal(size=(100, 3))
    old = old_posterior(draws, generator)
    points = 0.1 * generator.normal(size=(NUM_DRAWS, 3)) + 40.0
    wide = np.concatenate([points, points + 4.0])
    assert not sensitivity(old, old.fitted(), wide, wide).is_determined
