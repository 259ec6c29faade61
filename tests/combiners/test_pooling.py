import numpy as np

from vcmc.combiners.pooling import (
    equal_counts,
    pool,
    symmetric_root,
    thin,
    transport,
    transport_maps,
)


def test_maps_are_symmetric_and_move_covariances(powered):
    truth = powered(5, 4)
    maps = transport_maps(truth.shards.covariances, truth.covariance)
    moved = maps @ truth.shards.covariances @ maps.transpose(0, 2, 1)
    np.testing.assert_allclose(moved, np.tile(truth.covariance, (5, 1, 1)), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(maps, maps.transpose(0, 2, 1), atol=1e-12)
    assert np.linalg.eigvalsh(maps).min() > 0


def test_roots_are_symmetric_and_square_to_the_matrices(gaussian_shards):
    covariances = gaussian_shards(3, 4).covariances
    roots = symmetric_root(covariances)
    np.testing.assert_allclose(roots @ roots, covariances, rtol=1e-10)
    np.testing.assert_allclose(roots, roots.transpose(0, 2, 1), atol=1e-12)


def test_transported_draws_have_the_mean_and_covariance_of_the_goal(gaussian_shards):
    shards = gaussian_shards(4, 2)
    goal = np.array([[2.0, 0.5], [0.5, 1.0]])
    maps = transport_maps(shards.covariances, goal)
    mean = np.array([3.0, -1.0])
    draws = np.asarray(transport(shards.subposteriors(4000), shards.means, mean, maps))
    assert draws.shape == (4000, 2)
    # a thousand draws of every shard, whose own moments are exact
    assert np.abs(draws.mean(axis=0) - mean).max() < 4 * np.sqrt(2 / 4000)
    assert np.abs(np.cov(draws.T) - goal).max() < 4 * 2 * np.sqrt(2 / 4000)


def test_counts_are_equal_up_to_one_and_add_up(subposteriors):
    draws = [np.zeros((count, 1)) for count in (10, 3, 7)]
    counts = equal_counts(subposteriors(draws))
    assert counts.sum() == 10
    assert counts.max() - counts.min() == 1


def test_pools_have_so_many_draws_of_each_shard(subposteriors):
    draws = [np.full((5, 1), float(shard)) for shard in range(3)]
    values = np.asarray(pool(subposteriors(draws), [2, 0, 7]))[:, 0]
    assert np.bincount(values.astype(int), minlength=3).tolist() == [2, 0, 7]
    assert values.tolist() != sorted(values)


def test_thinned_draws_are_even():
    draws = np.arange(10.0)[:, None]
    assert thin(draws, 5)[:, 0].tolist() == [1, 3, 5, 7, 9]
    assert thin(draws, 1)[:, 0].tolist() == [5]
    assert thin(draws, 10).tolist() == draws.tolist()
    assert np.bincount(thin(draws, 20)[:, 0].astype(int)).tolist() == [2] * 10
    assert thin(draws, 0).shape == (0, 1)
