import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data import cache
from vcmc.data.cache import LoadedShards, ShardCache
from vcmc.data.shard import AbstractPartition
from vcmc.density import evaluate

POINTS = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3)))


class CountedLoads(AbstractPartition):
    """A partition that is not in memory, and counts how often each shard is loaded."""

    def __init__(self, partition):
        self.partition = partition
        self.num_shards_loaded = dict.fromkeys(range(partition.num_shards), 0)

    @property
    def num_shards(self):
        return self.partition.num_shards

    def load(self, shard):
        self.num_shards_loaded[shard] += 1
        return self.partition.load(shard)


@pytest.fixture
def counted(conjugate):
    return CountedLoads(vcmc.split(conjugate.rows, 4))


def test_a_shard_is_loaded_once(counted, conjugate):
    shard_cache = ShardCache(conjugate.model, counted)
    assert shard_cache.shards[2] is shard_cache.shards[2]
    shard_cache.density(2)
    assert counted.num_shards_loaded == {0: 0, 1: 0, 2: 1, 3: 0}


def test_a_cache_of_another_model_shares_the_loaded_shards(counted, conjugate):
    shard_cache = ShardCache(conjugate.model, counted)
    shard = shard_cache.shards[1]
    other_model = vcmc.models.Probit(3)
    other = shard_cache.with_model(other_model)
    assert other.model is other_model
    assert shard_cache.model is conjugate.model
    assert other.shards[1] is shard
    assert other.key != shard_cache.key
    assert counted.num_shards_loaded[1] == 1


def test_the_least_recently_used_shards_are_dropped_above_the_limit(
    counted, conjugate, monkeypatch
):
    num_bytes = counted.load(0).num_bytes
    counted.num_shards_loaded[0] = 0
    monkeypatch.setattr(cache, "MAX_KEPT_BYTES", 2 * num_bytes)
    shards = ShardCache(conjugate.model, counted).shards
    for number in (0, 1, 0, 2, 0, 1):  # at 2, shard 1 is dropped; at the last 1, shard 2
        shards[number]
    assert counted.num_shards_loaded == {0: 1, 1: 2, 2: 1, 3: 0}


def test_the_only_shard_is_kept_whatever_its_size(conjugate):
    loaded = LoadedShards()
    shard = vcmc.split(conjugate.rows, 1).load(0)
    assert loaded.get("key", lambda: shard, max_bytes=0) is shard
    assert loaded.get("key", lambda: pytest.fail("loaded again"), max_bytes=0) is shard


def test_a_joint_density_is_the_sum_over_its_shards(conjugate):
    shard_cache = ShardCache(conjugate.model, vcmc.split(conjugate.rows, 4))
    joint = evaluate(shard_cache.joint_density((1, 3), 3), POINTS)
    parts = [evaluate(shard_cache.density(shard), POINTS) for shard in (1, 3)]
    for values, terms in zip(joint, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(values, sum(terms), rtol=1e-10)


def test_powers_are_those_of_prior_and_likelihood(conjugate):
    shard_cache = ShardCache(conjugate.model, vcmc.split(conjugate.rows, 4))
    point = POINTS[0]
    log_prior = conjugate.model.log_prior_at(point)
    log_likelihood = conjugate.model.log_likelihood_at(point, shard_cache.shards[2])
    density = shard_cache.density(2, prior_power=0.3, likelihood_power=4.0)
    np.testing.assert_allclose(density(point), 4 * log_likelihood + 0.3 * log_prior, rtol=1e-12)


def test_a_subset_has_its_shards_only_until_others_are_merged(conjugate):
    shard_cache = ShardCache(conjugate.model, vcmc.split(conjugate.rows, 4))
    subset = shard_cache.subset([2])
    assert subset.key == shard_cache.key
    assert [subset.partition.has(shard) for shard in range(4)] == [False, False, True, False]
    subset.merge(shard_cache.subset([0, 3]))
    assert [subset.partition.has(shard) for shard in range(4)] == [True, False, True, True]
    for received, sent in zip(
        jax.tree.leaves(subset.shards[3]), jax.tree.leaves(shard_cache.shards[3]), strict=True
    ):
        np.testing.assert_array_equal(received, sent)


def test_a_pickled_cache_has_the_same_key():
    shard_cache = ShardCache(None, vcmc.split({"y": np.arange(6.0)}, 2))
    assert pickle.loads(pickle.dumps(shard_cache)).key == shard_cache.key


def test_there_are_no_other_shards(conjugate):
    shards = ShardCache(conjugate.model, vcmc.split(conjugate.rows, 4)).shards
    assert len(shards) == len(list(shards)) == 4
    for number in (-1, 4):
        with pytest.raises(IndexError, match=f"from 0 to 3; got {number}"):
            shards[number]
