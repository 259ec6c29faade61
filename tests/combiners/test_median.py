import numpy as np
import pytest

from vcmc.combiners.median import Median, median_weights


def corrupted(truth, num_draws, shard, sds):
    draws = np.array(truth.shards.draws(num_draws))
    draws[shard] += sds * truth.sds
    return list(draws)


def test_equal_shards_are_left_as_they_are(powered):
    truth = powered(6, 2)
    same = type(truth.shards)(np.tile(truth.mean, (6, 1)), np.tile(truth.covariance, (6, 1, 1)))
    combined = Median()(truth._replace(shards=same).subposteriors(6000))
    mean, covariance = truth.off(combined.draws)
    assert combined.draws.shape == (6000, 2)
    assert mean < 4 / np.sqrt(6000)
    assert covariance < 4 * np.sqrt(2 / 6000)
    assert not combined.notes


def test_it_is_the_median_in_the_space_of_the_kernel(powered):
    """Against kernel matrices of all draws, without random features."""
    truth, num_draws = powered(5, 2), 300
    draws = np.asarray(truth.shards.draws(num_draws))
    roots = np.linalg.cholesky(truth.shards.covariances.mean(axis=0))
    white = np.linalg.solve(roots, draws.reshape(-1, 2).T).T
    squares = np.sum((white[:, None] - white) ** 2, axis=2)
    kernel = np.exp(-squares / (2 * np.median(squares)))
    products = kernel.reshape(5, num_draws, 5, num_draws).mean(axis=(1, 3))
    values, vectors = np.linalg.eigh(products)
    weights = median_weights(vectors * np.sqrt(np.maximum(values, 0)))
    weights = np.where(weights < 0.1, 0, weights) / weights[weights >= 0.1].sum()
    merged = np.asarray(Median()(truth.subposteriors(num_draws * 10)).draws)
    expected = weights @ truth.shards.means
    spread = np.sqrt(np.max(weights @ (truth.shards.means - expected) ** 2 / truth.sds**2))
    # weights are known to a few per cent, by 500 frequencies and a bandwidth of 1000 distances
    assert np.abs((merged.mean(axis=0) - expected) / truth.sds).max() < 0.1 * spread + 4 / np.sqrt(
        3000
    )


def test_one_shard_in_ten_may_be_wrong(powered):
    truth = powered(10, 2)
    clean = Median()(truth.subposteriors(4000))
    combined = Median()(truth.subposteriors(corrupted(truth, 4000, 3, 50.0)))
    shift = np.abs(np.mean(combined.draws, axis=0) - np.mean(clean.draws, axis=0)) / truth.sds
    # an average would be off by 5 sds; shards' means are √10 sds apart, of which a tenth or two may
    # be gone
    assert shift.max() < 1.5
    assert np.abs((combined.draws - truth.mean) / truth.sds).max() < 20
    assert not clean.notes
    (note,) = combined.notes
    assert "Dropped shard 3, which" in note


def test_a_shard_that_is_too_wide_is_named(powered):
    truth = powered(10, 2)
    draws = list(np.array(truth.shards.draws(2000)))
    draws[7] = 50 * (draws[7] - truth.mean) + truth.mean
    (note,) = Median()(truth.subposteriors(draws)).notes
    assert "shard 7," in note


@pytest.mark.parametrize("seed", range(5))
def test_good_shards_are_not_named(seed, powered):
    assert not Median()(powered(20, 2, seed=seed).subposteriors(300)).notes


@pytest.mark.parametrize("num_shards", [2, 3])
def test_few_shards(num_shards, powered):
    truth = powered(num_shards, 1)
    combined = Median()(truth.subposteriors(500))
    low, high = truth.shards.means.min(), truth.shards.means.max()
    assert low - 0.2 * truth.sds < np.mean(combined.draws) < high + 0.2 * truth.sds


def test_units_do_not_matter(powered):
    truth, units = powered(4, 2), np.array([1e-5, 1e4])
    draws = truth.shards.draws(500)
    plain, scaled = (Median()(truth.subposteriors(each)).draws for each in (draws, draws * units))
    np.testing.assert_allclose(scaled / units, plain, rtol=1e-8)


def test_unequal_counts(powered):
    truth = powered(4, 2)
    draws = [
        np.asarray(truth.shards.draws(count)[shard])
        for shard, count in enumerate((3000, 100, 2000, 50))
    ]
    merged = Median()(truth.subposteriors(draws)).draws
    assert merged.shape == (3000, 2)
    assert np.isfinite(merged).all()
