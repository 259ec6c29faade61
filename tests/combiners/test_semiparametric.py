import numpy as np
import pytest
from scipy.stats import norm

import vcmc
from vcmc.combiners import Parametric, Semiparametric, Subposteriors
from vcmc.space import Product

GRID = np.linspace(-6, 12, 2251)


def line(draws, seed=0):
    """Shards of one dimension."""
    return Subposteriors(
        [own[:, None] for own in draws], Product({"theta": vcmc.Real(1)}), seed=seed
    )


def corrected(draws, bandwidth, like):
    """The Gaussian of one shard, corrected by kernels, on the grid; its precision is estimated as
    for so many draws."""
    mean, sd = draws.mean(), np.std(draws, ddof=1)
    narrow = sd * np.sqrt(
        (like - 1) / (like - 3)
    )  # without what the inverse of an estimate is too large by
    weights = 1 / norm.pdf(draws, mean, narrow)
    kernels = norm.pdf(GRID[:, None], draws, bandwidth * narrow)
    return norm.pdf(GRID, mean, narrow) * (kernels @ weights) / len(draws)


def distance(draws, densities):
    """The largest gap between the cdfs of the draws and of the product of densities."""
    cdf = np.cumsum(np.prod(densities, axis=0))
    return np.abs(np.searchsorted(np.sort(draws), GRID) / len(draws) - cdf / cdf[-1]).max()


def test_draws_are_of_the_product_of_corrected_gaussians():
    shards, bandwidth, num_draws = np.random.default_rng(0).gamma(3.0, size=(2, 400)), 0.3, 4000
    tiled = np.tile(
        shards, num_draws // shards.shape[1]
    )  # the same kernels, and more draws of their product
    merged = np.asarray(Semiparametric(bandwidth)(line(tiled)).draws)[:, 0]
    # Kolmogorov: 1.95 is passed once in a thousand; chains are independent, one for every draw
    assert distance(
        merged, [corrected(own, bandwidth, num_draws) for own in tiled]
    ) < 1.95 / np.sqrt(num_draws)


def test_unequal_counts():
    many, few = np.random.default_rng(1).gamma(3.0, size=(2, 4000))
    few = few[:300]
    merged = np.asarray(Semiparametric(0.3)(line([many, few])).draws)[:, 0]
    assert len(merged) == len(many)
    assert distance(
        merged, [corrected(own, 0.3, len(own)) for own in (many, few)]
    ) < 1.95 / np.sqrt(len(merged))


@pytest.mark.parametrize("pairwise", [True, False])
def test_product_of_gaussians(pairwise, gaussian_shards):
    num_draws = 20_000
    shards = gaussian_shards(4, 2)
    mean, covariance = shards.product()
    merged = np.asarray(Semiparametric(pairwise=pairwise)(shards.subposteriors(num_draws)).draws)
    white = (merged - mean) @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    # the noise of kernels is there beside that of draws: three times the error of independent draws
    assert np.abs(white.mean(axis=0)).max() < 4 * 3 / np.sqrt(num_draws)
    assert np.abs(np.cov(white.T) - np.eye(2)).max() < 4 * 3 * np.sqrt(2 / num_draws)


def test_skewed_shards_are_corrected():
    num_shards, num_draws = 4, 5000
    shards = line(np.random.default_rng(2).gamma(3.0, size=(num_shards, num_draws)))
    # the product of Gamma(3) is Gamma(2 K + 1) at rate K
    mean, sd = (2 * num_shards + 1) / num_shards, np.sqrt(2 * num_shards + 1) / num_shards
    shifts = [
        abs(np.asarray(combiner(shards).draws).mean() - mean) / sd
        for combiner in (Semiparametric(), Parametric())
    ]
    assert shifts[0] < 0.25 < 0.5 < shifts[1]


def test_bandwidths_out_of_range_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        Semiparametric(1.5)
