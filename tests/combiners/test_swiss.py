import numpy as np
import pytest

from vcmc.combiners.swiss import Swiss

NUM_DRAWS = 20_000


@pytest.mark.parametrize(("num_shards", "dim"), [(4, 2), (7, 5)])
def test_gaussian_shards_give_the_posterior(num_shards, dim, powered):
    truth = powered(num_shards, dim)
    combined = Swiss()(truth.subposteriors(NUM_DRAWS))
    assert combined.draws.shape == (NUM_DRAWS, dim)
    mean, covariance = truth.off(combined.draws)
    assert mean < 4 / np.sqrt(NUM_DRAWS)
    assert covariance < 4 * np.sqrt(2 / NUM_DRAWS)
    assert not combined.notes


def test_the_mean_of_powered_precisions_is_that_of_all_rows(powered):
    truth = powered(4, 2)
    precisions = np.linalg.inv(truth.shards.covariances)
    np.testing.assert_allclose(np.linalg.inv(precisions.mean(axis=0)), truth.covariance, rtol=1e-10)


def test_units_do_not_matter(powered):
    truth, units = powered(4, 2), np.array([1e-5, 1e4])
    draws = truth.shards.draws(500)
    plain, scaled = (Swiss()(truth.subposteriors(each)).draws for each in (draws, draws * units))
    np.testing.assert_allclose(scaled / units, plain, rtol=1e-8)


def test_skewness_is_kept(powered):
    # log-gamma shards whose means and sds differ: after the move all have one skewness, which
    # pooling leaves alone
    generator, truth = np.random.default_rng(1), powered(4, 1)
    scales, shifts = np.array([[1.0, 1.5, 0.5, 1.0], [1.0, 0.0, 2.0, 1.0]])[:, :, None, None]
    skewed = shifts + scales * np.log(generator.gamma(3.0, size=(4, 5000, 1)))
    merged = np.asarray(Swiss()(truth.subposteriors(list(skewed))).draws)[:, 0]
    white = (merged - merged.mean()) / merged.std()
    expected = -0.6128  # ψ''(3) / ψ'(3)^{3/2}
    assert abs(np.mean(white**3) - expected) < 4 * np.sqrt(15 / 5000)


def test_unequal_counts(powered):
    truth = powered(4, 2)
    counts = (4000, 500, 2000, 3999)
    draws = [np.asarray(truth.shards.draws(count)[shard]) for shard, count in enumerate(counts)]
    merged = Swiss()(truth.subposteriors(draws)).draws
    assert merged.shape == (4000, 2)
    mean, covariance = truth.off(merged)
    assert mean < 4 * np.sqrt(1 / 1500)  # the shard of 500 draws counts for a quarter
    assert covariance < 4 * np.sqrt(2 / 1500)
