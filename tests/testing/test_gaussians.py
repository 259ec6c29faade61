"""Shards with known posteriors: their draws, products and densities are what they claim."""

import jax.numpy as jnp
import numpy as np

from vcmc.testing.gaussians import GaussianShards, LazyShards, regression

SHARDS = GaussianShards.random(3, 2, seed=1)


def test_draws_have_exactly_the_moments_of_their_shard():
    draws = np.asarray(SHARDS.draws(50))
    np.testing.assert_allclose(draws.mean(axis=1), SHARDS.means, atol=1e-12)
    for shard, covariance in zip(draws, SHARDS.covariances, strict=True):
        np.testing.assert_allclose(np.cov(shard.T, bias=True), covariance, rtol=1e-10)


def test_the_product_is_where_the_target_has_its_mode_and_curvature():
    mean, covariance = SHARDS.product()
    step = np.array([0.3, -0.2])
    log_densities, scores = SHARDS.target()(jnp.stack([mean, mean + step]))
    np.testing.assert_allclose(scores[0], 0, atol=1e-10)
    fall = 0.5 * step @ np.linalg.solve(covariance, step)
    np.testing.assert_allclose(log_densities[0] - log_densities[1], fall, rtol=1e-10)


def test_repeated_shards_are_all_alike():
    repeated = SHARDS.repeated(4)
    assert repeated.means.shape == (4, 2)
    assert (repeated.covariances == SHARDS.covariances[0]).all()


def test_the_posterior_of_the_regression_solves_the_normal_equations():
    rows, precision = regression().rows, regression().prior_precision
    mean, covariance = regression().posterior()
    score = rows["x"].T @ (rows["y"] - rows["x"] @ mean) - precision * mean
    np.testing.assert_allclose(score, 0, atol=1e-8)
    np.testing.assert_allclose(
        np.linalg.inv(covariance), rows["x"].T @ rows["x"] + np.diag(precision), rtol=1e-8
    )


def test_lazy_draws_count_the_shards_in_memory():
    loaded = LazyShards(np.zeros((4, 10, 2)))
    for shard in range(4):
        loaded[shard]
    assert loaded.most == 1
    held = [loaded[shard] for shard in range(3)]
    assert loaded.most == len(held) == 3
