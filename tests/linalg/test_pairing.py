import numpy as np

from vcmc.linalg.pairing import random_pairing, sum_pairs


def test_every_draw_is_used_equally_often():
    pairing = random_pairing(10, 40, seed=3)
    assert np.bincount(pairing).tolist() == [4] * 10
    assert sorted(pairing[:10]) == list(range(10))


def test_a_last_order_may_be_cut_short():
    counts = np.bincount(random_pairing(10, 25, seed=3), minlength=10)
    assert sorted(counts) == [2] * 5 + [3] * 5


def test_shards_are_paired_independently():
    """Products of centred draws have mean zero: 400 of sd one, of which 200 are independent."""
    values = np.linspace(-1, 1, 20)
    values = values / values.std()
    first, second = (values[random_pairing(20, 400, (0, shard))] for shard in range(2))
    assert abs(np.mean(first * second)) < 4 / np.sqrt(200)


def test_one_draw_of_each_shard_is_added_up():
    draws = np.random.default_rng(0).normal(size=(3, 5, 2))
    pairs = np.stack([random_pairing(5, 12, shard) for shard in range(3)])
    expected = sum(draws[shard][pairs[shard]] for shard in range(3))
    np.testing.assert_allclose(sum_pairs(draws, pairs), expected)
