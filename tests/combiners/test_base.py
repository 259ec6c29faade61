import numpy as np
import pytest

from vcmc.combiners import Average, ImportanceResample
from vcmc.combiners.base import repeat_evenly


def test_draws_are_thinned_or_repeated_evenly():
    draws = np.arange(6.0)[:, None]
    assert repeat_evenly(draws, 3)[:, 0].tolist() == [0, 2, 4]
    assert np.bincount(repeat_evenly(draws, 12)[:, 0].astype(int)).tolist() == [2] * 6


def test_smaller_shards_are_repeated_in_the_stack(subposteriors):
    shards = subposteriors([np.arange(4.0)[:, None], np.arange(2.0)[:, None]])
    assert shards.counts == (4, 2)
    assert shards.num_draws == 4
    assert shards.stacked[1, :, 0].tolist() == [0, 0, 1, 1]


def test_a_single_shard_is_returned_unchanged(subposteriors):
    draws = np.random.default_rng(0).normal(size=(5, 2))
    combined = Average()(subposteriors([draws]))
    np.testing.assert_array_equal(combined.draws, draws)
    np.testing.assert_array_equal(combined.weights, np.ones((1, 2)))


def test_a_target_is_asked_for(subposteriors):
    with pytest.raises(ValueError, match=r"needs the full-data log density, .*rows=rows\)"):
        ImportanceResample()(subposteriors([np.zeros((5, 1))] * 2))
