"""Optimizers that follow gradients: settings, batches, and when they stop."""

import numpy as np
import pytest

from vcmc.variational import Adaptive, Newton, ProjectedGradient
from vcmc.variational.optimizer import _rises, random_batch


@pytest.mark.parametrize("kind", [Adaptive, Newton, ProjectedGradient])
def test_bad_counts_are_refused(kind):
    with pytest.raises(ValueError, match="num_samples must be 2 or more; got 1"):
        kind(num_samples=1)
    with pytest.raises(ValueError, match="max_iterations must be 1 or more; got 0"):
        kind(max_iterations=0)


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_of_the_data_is_above_zero_and_at_most_one(share):
    with pytest.raises(ValueError, match="data_fraction must be above 0 and at most 1"):
        Adaptive(data_fraction=share)


def test_batches_choose_the_draws_of_each_shard_separately():
    class Shape:
        num_draws, num_shards = 7, 3

    batch = random_batch(Shape(), 1000, np.random.default_rng(0))
    assert batch.shape == (1000, 3)
    assert set(batch.ravel()) == set(range(7))
    assert np.abs(np.corrcoef(batch.T) - np.eye(3)).max() < 0.15


def test_a_rise_within_the_noise_is_no_rise():
    noise = np.random.default_rng(0).normal(size=8)
    assert not _rises(noise[:4], noise[4:] - noise[4:].mean() + noise[:4].mean())
    assert _rises(noise[:4], noise[4:] + 5)
