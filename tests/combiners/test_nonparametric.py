import numpy as np
import pytest
from scipy.stats import norm

import vcmc
from vcmc.combiners import Nonparametric, Parametric, Subposteriors
from vcmc.space import Product

GRID = np.linspace(-6, 10, 2001)


def line(draws, seed=0):
    """Shards of one dimension."""
    return Subposteriors(
        [own[:, None] for own in draws], Product({"theta": vcmc.Real(1)}), seed=seed
    )


def two_modes(num_shards, num_draws, share, seed=0):
    """Shards with modes at ±1.5, whose share on the right is given."""
    generator = np.random.default_rng(seed)
    signs = np.where(generator.random((num_shards, num_draws)) < share, 1.5, -1.5)
    return signs + 0.6 * generator.normal(size=signs.shape)


def skewed(num_shards, num_draws, seed=0):
    return np.random.default_rng(seed).gamma(3.0, size=(num_shards, num_draws))


def kernel_density(draws, bandwidth, shrink=True):
    """The smoothed density of one shard on the grid."""
    mean, sd = draws.mean(), draws.std(ddof=1)
    pulled = mean + np.sqrt(1 - bandwidth**2 * shrink) * (draws - mean)
    return norm.pdf(GRID[:, None], pulled, bandwidth * sd).mean(axis=1)


def distance(draws, densities):
    """The largest gap between the cdfs of the draws and of the product of densities."""
    cdf = np.cumsum(np.prod(densities, axis=0))
    return np.abs(np.searchsorted(np.sort(draws), GRID) / len(draws) - cdf / cdf[-1]).max()


@pytest.mark.parametrize("shrink", [True, False])
@pytest.mark.parametrize(
    "make", [skewed, lambda *sizes: two_modes(*sizes, share=0.6)], ids=["skewed", "modes"]
)
def test_draws_are_of_the_product_of_kernel_densities(make, shrink):
    shards, bandwidth, num_draws = make(2, 400), 0.3, 4000
    tiled = np.tile(
        shards, num_draws // shards.shape[1]
    )  # the same kernels, and more draws of their product
    merged = np.asarray(Nonparametric(bandwidth, shrink=shrink)(line(tiled)).draws)
    densities = [kernel_density(own, bandwidth, shrink) for own in shards]
    # Kolmogorov: 1.95 is passed once in a thousand; chains are independent, one for every draw
    assert distance(merged[:, 0], densities) < 1.95 / np.sqrt(num_draws)


def test_product_of_gaussians(gaussian_shards):
    num_draws = 20_000
    shards = gaussian_shards(4, 2)
    mean, covariance = shards.product()
    merged = np.asarray(Nonparametric()(shards.subposteriors(num_draws)).draws)
    white = (merged - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    # two levels of pairs, each with the noise of kernels beside that of draws: three times the
    # error of independent draws
    assert np.abs(white.mean(axis=0)).max() < 4 * 3 / np.sqrt(num_draws)
    assert np.abs(np.cov(white.T) - np.eye(2)).max() < 4 * 3 * np.sqrt(2 / num_draws)


def test_modes_have_their_mass():
    num_shards, num_draws, share = 16, 2000, 0.55
    shards = line(two_modes(num_shards, num_draws, share))
    expected = 1 / (1 + ((1 - share) / share) ** num_shards)
    merged = np.asarray(Nonparametric()(shards).draws)[:, 0]
    counted = np.array([(own > 0).mean() for own in shards])
    # what can be known: the log odds of the shards' own shares, and their error
    log_odds = np.sum(np.log(counted / (1 - counted)))
    error = np.sqrt(num_shards / (num_draws * share * (1 - share)))
    odds = np.mean(merged > 0) / np.mean(merged < 0)
    assert abs(np.log(odds) - log_odds) < 4 * error
    assert abs(log_odds - np.log(expected / (1 - expected))) < 4 * error
    parametric = np.asarray(Parametric()(shards).draws)[:, 0]
    assert np.mean(np.abs(merged) < 0.75) < 0.02 < np.mean(np.abs(parametric) < 0.75)


def test_unequal_counts():
    many, few = two_modes(2, 5000, 0.6)
    few = few[:300]
    merged = np.asarray(Nonparametric(0.3)(line([many, few])).draws)[:, 0]
    densities = [kernel_density(own, 0.3) for own in (many, few)]
    assert len(merged) == len(many)
    assert distance(merged, densities) < 1.95 / np.sqrt(len(merged))


def test_many_dimensions_are_doubtful(gaussian_shards):
    num_draws, dim = 4000, 20
    shards = gaussian_shards(6, dim, spread=0.3)
    mean, covariance = shards.product()
    whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T

    def excess(combined):
        """How much too large variances are."""
        return np.var((np.asarray(combined.draws) - mean) @ whiten, axis=0).mean() - 1

    plain, shrunk, parametric = (
        combiner(shards.subposteriors(num_draws))
        for combiner in (Nonparametric(shrink=False), Nonparametric(), Parametric())
    )
    assert "20 dimensions" in plain.notes[0]
    assert "20 dimensions" in shrunk.notes[0]
    assert not parametric.notes
    assert excess(plain) > 0.5 > 2 * excess(parametric)
    assert abs(excess(shrunk)) < 0.2


def test_shards_that_barely_overlap_are_doubtful():
    generator = np.random.default_rng(0)
    shards = line(generator.normal([[0.0], [9.0]], size=(2, 1000)))
    assert "hardly move" in Nonparametric()(shards).notes[0]


@pytest.mark.parametrize("bandwidth", [0.0, 1.0, -0.2])
def test_bandwidths_out_of_range_are_refused(bandwidth):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Nonparametric(bandwidth)
