"""Means and covariances of shards, and their shrinkage, against scikit-learn and known optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.covariance import OAS

from vcmc.aggregators import Precision
from vcmc.linalg.shrinkage import _intensities, means_and_covariances, shrunk_covariances


def test_means_and_covariances_are_numpys():
    shards = [np.random.default_rng(k).normal(size=(20 + k, 3)) for k in range(3)]
    means, covariances = means_and_covariances(shards)
    np.testing.assert_allclose(means, [shard.mean(axis=0) for shard in shards], rtol=1e-12)
    expected = [np.cov(shard.T, bias=True) for shard in shards]
    np.testing.assert_allclose(covariances, expected, rtol=1e-10)


def test_shrinkage_is_oracle_approximating():
    draws = np.random.default_rng(1).normal(size=(30, 12)) * np.linspace(1, 4, 12)
    expected = OAS().fit(draws).covariance_
    covariance = np.cov(draws.T, ddof=0)
    (intensity,), (variance,) = _intensities(covariance[None], 30)
    np.testing.assert_allclose(
        (1 - intensity) * covariance + intensity * variance * np.eye(len(covariance)),
        expected,
        rtol=1e-10,
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_draws", [10, 30, 300])
def test_shrinkage_helps_where_draws_are_few(num_draws):
    """Twenty dimensions, equal shards: the best weights are uniform, plain inverses are far off."""
    noise = jax.random.normal(jax.random.key(0), (8, num_draws, 20)) @ jnp.linspace(
        -1, 1, 400
    ).reshape(20, 20)
    draws = noise + jax.random.normal(jax.random.key(1), noise.shape)
    covariances = shrunk_covariances(draws)
    assert (np.linalg.eigvalsh(covariances) > 0).all()
    best = jnp.eye(20) / 8
    error = jnp.abs(Precision().matrices(np.linalg.inv(covariances)) - best).max()
    assert np.isfinite(error)  # ten draws in twenty dimensions: a plain covariance has no inverse
    if num_draws > 21:
        precisions = jnp.linalg.inv(jnp.stack([jnp.cov(shard.T) for shard in draws]))
        plain = jnp.linalg.solve(precisions.sum(axis=0), precisions)
        assert error < 0.5 * jnp.abs(plain - best).max()


def test_shrinkage_vanishes_where_draws_are_many(gaussian_shards):
    draws = gaussian_shards(5, 3).draws(20_000)
    plain = np.stack([np.cov(shard.T) for shard in draws])
    np.testing.assert_allclose(shrunk_covariances(draws), plain, rtol=0.01, atol=0.01)
