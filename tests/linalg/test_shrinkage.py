"""Means and covariances of shards, and their shrinkage, against scikit-learn and known optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.covariance import OAS

from vcmc.aggregators import Precision
from vcmc.linalg.shrinkage import (
    _intensities,
    covariance_root,
    means_and_covariances,
    shrunk_covariances,
)


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


def test_the_root_of_a_covariance_is_its_cholesky_root():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.testing.assert_array_equal(covariance_root(covariance), np.linalg.cholesky(covariance))


def test_covariances_that_rounding_makes_indefinite_have_roots():
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(500, 3)) * [1.0, 1e13, 1e-9]
    draws = np.column_stack([draws, draws[:, 0] + draws[:, 1], np.zeros(500)])
    covariance = np.cov(draws.T)
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(covariance)
    root = covariance_root(covariance)
    scales = np.sqrt(np.diag(covariance))[:4]
    found = (root @ root.T)[:4, :4] / np.outer(scales, scales)
    np.testing.assert_allclose(found, covariance[:4, :4] / np.outer(scales, scales), atol=1e-3)
    assert np.isfinite(np.linalg.inv(root)).all()


def test_a_covariance_that_is_not_finite_has_no_root():
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        covariance_root(np.full((2, 2), np.nan))
