import numpy as np

from vcmc.combiners.gaussians import Gaussian, Gaussians


def test_the_product_of_gaussians_is_the_closed_form(gaussian_shards):
    shards = gaussian_shards(4, 3)
    many = np.full(4, 10**9)  # draws, so that nothing is corrected
    product = Gaussians(shards.means, shards.covariances, many, np.zeros(4)).product()
    expected = shards.product()
    np.testing.assert_allclose(product.mean, expected.mean, rtol=1e-7)
    np.testing.assert_allclose(product.covariance, expected.covariance, rtol=1e-7)


def test_precisions_of_few_draws_are_unbiased():
    """The inverse of a covariance of n draws is too large by (n - 1) / (n - dim - 2) on average."""
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(4000, 20, 3))
    covariances = np.array([np.cov(shard.T) for shard in draws])
    gaussians = Gaussians(draws.mean(axis=1), covariances, np.full(4000, 20), np.zeros(4000))
    mean = gaussians.precisions.mean(axis=0)
    spread = gaussians.precisions.std(axis=0) / np.sqrt(4000)
    assert (np.abs(mean - np.eye(3)) < 4.5 * spread).all()


def test_wholly_shrunk_covariances_are_not_corrected(gaussian_shards):
    shards = gaussian_shards(3, 2)
    gaussians = Gaussians(shards.means, shards.covariances, np.full(3, 10), np.ones(3))
    np.testing.assert_allclose(gaussians.precisions, np.linalg.inv(shards.covariances))


def test_moments_are_those_of_the_draws(gaussian_shards):
    shards = gaussian_shards(3, 2)
    gaussians = Gaussians.of(shards.subposteriors(100_000))
    np.testing.assert_allclose(gaussians.means, shards.means, atol=1e-9)
    np.testing.assert_allclose(gaussians.covariances, shards.covariances, rtol=0.01, atol=1e-3)


def test_draws_have_the_moments_of_the_gaussian():
    gaussian = Gaussian(np.array([1.0, -2.0]), np.array([[2.0, 0.8], [0.8, 1.0]]))
    draws = gaussian.draws(40_000, np.random.default_rng(0))
    assert np.abs(draws.mean(axis=0) - gaussian.mean).max() < 4 * np.sqrt(2 / 40_000)
    assert np.abs(np.cov(draws.T) - gaussian.covariance).max() < 4 * 2 * np.sqrt(2 / 40_000)
