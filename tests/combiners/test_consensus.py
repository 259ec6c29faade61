import numpy as np
import pytest

from vcmc.combiners import Consensus

NUM_DRAWS = 20_000


@pytest.fixture(scope="module")
def shards(gaussian_shards):
    return gaussian_shards(5, 3)


def test_full_consensus_is_the_product_of_gaussian_shards(shards):
    mean, covariance = shards.product()
    merged = np.asarray(Consensus()(shards.subposteriors(NUM_DRAWS)).draws)
    sds = np.sqrt(np.diag(covariance))
    # √3 for the weights, which are estimated from the draws; the shards' means lie within a few sds
    assert (np.abs(merged.mean(axis=0) - mean) < 4 * np.sqrt(3) * sds / np.sqrt(NUM_DRAWS)).all()
    relative = np.cov(merged.T) / np.outer(sds, sds) - covariance / np.outer(sds, sds)
    assert np.abs(relative).max() < 4 * np.sqrt(3) * np.sqrt(2 / NUM_DRAWS)


def test_diagonal_consensus_uses_variances_only(shards):
    subposteriors = shards.subposteriors(500)
    precision = 1 / np.var(subposteriors.draws, axis=1, ddof=1)
    weights = Consensus(diagonal=True)(subposteriors).weights
    np.testing.assert_allclose(weights, precision / precision.sum(axis=0), rtol=1e-10)
