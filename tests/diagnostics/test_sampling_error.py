"""Monte Carlo errors of paired draws, against their spread over repetitions."""

import numpy as np
import pytest

from vcmc.diagnostics.sampling_error import DrawSource, sampling_variances
from vcmc.linalg.pairing import random_pairing, sum_pairs

NUM_REPETITIONS = 200


def statistics(num_shards, shard_draws, num_draws, seed):
    """Combined draws of uniform shards, standardized: their quantiles and reported variances."""
    generator = np.random.default_rng(seed)
    parts = generator.uniform(-1, 1, size=(num_shards, shard_draws, 1))
    parts = parts - parts.mean(axis=1, keepdims=True)
    pairs = np.stack([random_pairing(shard_draws, num_draws, (seed, k)) for k in range(num_shards)])
    draws = sum_pairs(parts, pairs)
    white = (draws - draws.mean()) / draws.std()
    source = DrawSource(num_draws, pairs, np.full(num_shards, float(shard_draws)))
    chance = sampling_variances(white, np.sort(white, axis=0), white, source)
    skewness = float(np.mean(white**3))
    low, high = np.quantile(white, (0.05, 0.95))
    # less the effect of the skewness, which is corrected for
    corrected = low - skewness * (low**2 - 1) / 6, high - skewness * (high**2 - 1) / 6
    return corrected, [float(variance[0]) for variance in chance.quantiles]


@pytest.mark.parametrize(("num_shards", "shard_draws"), [(2, 60), (20, 50)])
def test_variances_are_those_of_repetitions(num_shards, shard_draws):
    """With two shards, sharing draws makes most of the variance; with twenty, little of it."""
    results = [statistics(num_shards, shard_draws, 2000, seed) for seed in range(NUM_REPETITIONS)]
    quantiles, variances = (np.array(parts) for parts in zip(*results, strict=True))
    ratios = quantiles.var(axis=0) / variances.mean(axis=0)
    # relative standard error of a variance of 200 values: 0.1
    assert (ratios > 0.6).all()
    assert (ratios < 1.4).all()


def test_shared_draws_count():
    """Of two shards with few draws, the errors are far larger than those of independent draws."""
    _, shared = statistics(2, 30, 3000, seed=0)
    _, many = statistics(2, 3000, 3000, seed=0)
    assert min(shared) > 3 * max(many)
