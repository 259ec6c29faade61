import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.covariance import OAS

from vcmc.combiners import Consensus
from vcmc.combiners.consensus import _shrink, shrunk_covariances

NUM_DRAWS = 20_000


@pytest.fixture(scope="module")
def gaussian_shards():
    """Draws of Gaussian shards with different means and covariances, and their product."""
    generator = np.random.default_rng(0)
    roots = generator.normal(size=(5, 3, 3))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(3)
    means = generator.normal(size=(5, 3))
    draws = np.stack(
        [generator.multivariate_normal(m, c, NUM_DRAWS) for m, c in zip(means, covariances, strict=True)]
    )
    precisions = np.linalg.inv(covariances)
    covariance = np.linalg.inv(precisions.sum(axis=0))
    mean = covariance @ np.einsum("kij,kj->i", precisions, means)
    return jnp.asarray(draws), mean, covariance


def test_full_consensus_is_the_product_of_gaussian_shards(gaussian_shards):
    draws, mean, covariance = gaussian_shards
    merged = np.asarray(Consensus()(draws))
    sds = np.sqrt(np.diag(covariance))
    # √3 for the weights, which are estimated from the draws; the shards' means lie within a few sds
    assert (np.abs(merged.mean(axis=0) - mean) < 4 * np.sqrt(3) * sds / np.sqrt(NUM_DRAWS)).all()
    relative = np.cov(merged.T) / np.outer(sds, sds) - covariance / np.outer(sds, sds)
    assert np.abs(relative).max() < 4 * np.sqrt(3) * np.sqrt(2 / NUM_DRAWS)


def test_diagonal_consensus_uses_variances_only(gaussian_shards):
    draws, _, _ = gaussian_shards
    weights = Consensus(diagonal=True).aggregator(draws).weights
    precision = 1 / np.var(draws, axis=1, ddof=1)
    np.testing.assert_allclose(weights, precision / precision.sum(axis=0), rtol=1e-10)


def test_shrinkage_is_oracle_approximating():
    draws = np.random.default_rng(1).normal(size=(30, 12)) * np.linspace(1, 4, 12)
    expected = OAS().fit(draws).covariance_
    np.testing.assert_allclose(_shrink(jnp.cov(draws.T, ddof=0), 30), expected, rtol=1e-10)


@pytest.mark.parametrize("num_draws", [10, 30, 300])
def test_shrinkage_helps_where_draws_are_few(num_draws):
    """Twenty dimensions, equal shards: the best weights are uniform, plain inverses are far off."""
    noise = jax.random.normal(jax.random.key(0), (8, num_draws, 20)) @ jnp.linspace(-1, 1, 400).reshape(
        20, 20
    )
    draws = noise + jax.random.normal(jax.random.key(1), noise.shape)
    covariances = shrunk_covariances(draws)
    assert (np.linalg.eigvalsh(covariances) > 0).all()
    best = jnp.eye(20) / 8
    error = jnp.abs(Consensus().aggregator(draws).weights - best).max()
    assert np.isfinite(error)  # ten draws in twenty dimensions: a plain covariance has no inverse
    if num_draws > 21:
        precisions = jnp.linalg.inv(jnp.stack([jnp.cov(shard.T) for shard in draws]))
        plain = jnp.linalg.solve(precisions.sum(axis=0), precisions)
        assert error < 0.5 * jnp.abs(plain - best).max()


def test_shrinkage_vanishes_where_draws_are_many(gaussian_shards):
    draws, _, _ = gaussian_shards
    plain = np.stack([np.cov(shard.T) for shard in draws])
    np.testing.assert_allclose(shrunk_covariances(draws), plain, rtol=0.01, atol=0.01)
