"""The density of old draws: exact on normal ones, close on skewed and heavy-tailed ones."""

import numpy as np
import pytest
from scipy import stats

from vcmc.models.surrogate import MIN_GAIN, Surrogate, is_mapped

NUM_DRAWS = 5000


def moments_after(log_density, grid, likelihood):
    """Return mean and sd of a density on a grid times a likelihood."""
    log_density = log_density + likelihood
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2)


def test_normal_draws_give_a_normal_density():
    generator = np.random.default_rng(0)
    root = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 2.0]])
    draws = generator.normal(size=(NUM_DRAWS, 3)) @ root + 3
    surrogate = Surrogate.fitted(draws, NUM_DRAWS, np.inf)
    assert surrogate.num_maps == 0
    white, values = surrogate.evaluate(draws)
    # with the precision that is unbiased, the covariance of draws is a little below one
    np.testing.assert_allclose(np.cov(white.T), np.eye(3) * (1 - 5 / NUM_DRAWS), atol=1e-9)
    covariance = np.cov(draws.T) / (1 - 5 / NUM_DRAWS)
    expected = stats.multivariate_normal(draws.mean(axis=0), covariance).logpdf(draws)
    np.testing.assert_allclose(values, expected, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 3])
def test_the_density_is_normalized_whatever_the_maps(dim):
    generator = np.random.default_rng(1)
    draws = np.log(generator.gamma([1.0, 3.0, 10.0][:dim], size=(NUM_DRAWS, dim)))
    surrogate = Surrogate.fitted(draws, NUM_DRAWS)
    assert is_mapped(surrogate.first).all()
    # by importance sampling from a Student t of the draws' moments
    proposal = stats.multivariate_t(draws.mean(axis=0), np.cov(draws.T).reshape(dim, dim), df=5)
    points = proposal.rvs(200_000, random_state=2).reshape(-1, dim)
    ratios = np.exp(surrogate.evaluate(points)[1] - proposal.logpdf(points))
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / len(ratios) ** 0.5


@pytest.mark.parametrize("shape", [1, 3, 10])
@pytest.mark.parametrize("move", [-1.0, 0.0, 1.0])
def test_new_rows_move_a_skewed_density_to_the_right_place(shape, move):
    family = stats.loggamma(shape)
    grid = np.linspace(family.ppf(1e-9), family.ppf(1 - 1e-9), 20_001)
    likelihood = -0.5 * ((grid - family.mean()) / family.std() - 2 * move) ** 2
    mean, sd = moments_after(family.logpdf(grid), grid, likelihood)
    errors = []
    for seed in range(3):
        draws = family.rvs((NUM_DRAWS, 1), random_state=seed)
        surrogate = Surrogate.fitted(draws, NUM_DRAWS)
        values = surrogate.evaluate(grid[:, None])[1]
        fitted_mean, fitted_sd = moments_after(values, grid, likelihood)
        errors.append(((fitted_mean - mean) / sd, fitted_sd / sd - 1))
    # the goal of an update by one sd; chance alone moves means by 0.02 sd
    assert np.abs(errors).max() < 0.1


def test_heavy_tails_are_seen():
    draws = np.random.default_rng(3).standard_t(3, size=(NUM_DRAWS, 2))
    surrogate = Surrogate.fitted(draws, NUM_DRAWS)
    assert is_mapped(surrogate.first).all()
    far = np.array([[6.0, 0.0]])
    truth = stats.t(3).logpdf(far).sum()
    assert abs(surrogate.evaluate(far)[1][0] - truth) < 1.0
    gaussian = Surrogate.fitted(draws, NUM_DRAWS, np.inf)
    assert gaussian.evaluate(far)[1][0] < truth - 2


def test_a_skewness_along_principal_axes_is_seen():
    generator = np.random.default_rng(4)
    sources = np.log(generator.gamma(2.0, size=(NUM_DRAWS, 2))) * [3.0, 0.5]
    rotation = np.array([[1.0, 1.0], [-1.0, 1.0]]) / 2**0.5
    draws = sources @ rotation
    surrogate = Surrogate.fitted(draws, NUM_DRAWS)
    truth = stats.loggamma(2).logpdf(sources / [3.0, 0.5]).sum(axis=1) - np.log(1.5)
    divergence = np.mean(truth - surrogate.evaluate(draws)[1])
    gaussian = Surrogate.fitted(draws, NUM_DRAWS, np.inf)
    assert divergence < 0.3 * np.mean(truth - gaussian.evaluate(draws)[1])


def test_maps_are_those_of_another_surrogate_if_asked():
    generator = np.random.default_rng(5)
    draws = np.log(generator.gamma([1.0, 1e4], size=(NUM_DRAWS, 2)))
    surrogate = Surrogate.fitted(draws, NUM_DRAWS, 8.0)
    assert is_mapped(surrogate.first).tolist() == [True, False]
    part = Surrogate.fitted(draws[:200], 200, like=surrogate)
    assert is_mapped(part.first).tolist() == [True, False]


def test_fewer_effective_draws_need_more_evidence():
    draws = np.log(np.random.default_rng(6).gamma(20.0, size=(NUM_DRAWS, 1)))
    assert Surrogate.fitted(draws, NUM_DRAWS).num_maps == 1
    assert Surrogate.fitted(draws, NUM_DRAWS / 50).num_maps == 0
    assert MIN_GAIN > 2  # of Akaike


@pytest.mark.parametrize(
    ("draws", "effective", "message"),
    [
        (np.ones((100, 1)), 100, "vary in every coordinate"),
        (np.random.default_rng(0).normal(size=(100, 60)), 100, "at least 120 effective draws"),
        (np.random.default_rng(0).normal(size=(100, 1)), 8, "rows="),
    ],
)
def test_draws_that_say_too_little_are_refused(draws, effective, message):
    with pytest.raises(ValueError, match=message):
        Surrogate.fitted(draws, effective)
