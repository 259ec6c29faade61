"""The second stage: draws of all shards, stacked, or an error with the sound ones."""

import numpy as np

import vcmc
from vcmc.inference.chains import ChainResult, SampledShards
from vcmc.inference.sampling import ShardDraws, _stack, shard_tree
from vcmc.samplers.base import Chain, Checkpoint


def chain(shard: int, number: int) -> ChainResult:
    points = np.full((5, 2), 10.0 * shard + number)
    stats = {"acceptance_rate": np.full(5, shard / 10)}
    return ChainResult(Chain(points, stats), Checkpoint(5, None), (100.0 + shard, 101.0 + shard))


def test_chains_are_stacked_by_shard_and_chain():
    places = [(shard, number) for shard in range(3) for number in range(2)]
    sampled = SampledShards({place: chain(*place) for place in places}, {})
    draws = _stack(sampled, num_chains=2)
    assert draws.points.shape == (3, 2, 5, 2)
    for shard, number in places:
        assert (draws.points[shard, number] == 10 * shard + number).all()
    assert draws.stats["acceptance_rate"].shape == (3, 2, 5)
    np.testing.assert_array_equal(draws.seconds["begin"], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(draws.seconds["end"], [[1, 1], [2, 2], [3, 3]])


def test_the_tree_of_shard_draws_has_params():
    space = {"scale": vcmc.Positive(), "mean": vcmc.Real(1)}
    model = vcmc.Model(space, lambda params: 0.0, lambda params, rows: 0.0, dims={"mean": ["one"]})
    draws = ShardDraws(np.zeros((2, 1, 4, 2)), {"lp": np.zeros((2, 1, 4))}, {})
    tree = shard_tree(model, draws, {"num_shards": 2})
    assert tree["subposterior"]["mean"].dims == ("shard", "chain", "draw", "one")
    assert (tree["subposterior"]["scale"] == 1).all()
    assert (tree["subposterior"]["mean"] == 0).all()
    assert tree["sample_stats"]["lp"].dims == ("shard", "chain", "draw")
