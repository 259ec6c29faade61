"""Which shards a batch forms: enough to keep slots busy, none too small."""

import numpy as np
import pytest

import vcmc
from vcmc.data.shard_list import BatchShard
from vcmc.inference.batch_plan import BatchSettings, EarlierShard, merge_small, plan_batch


def earlier_shards(*sizes):
    """Return shards of rows with numbers of their own."""
    firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    parts = [
        vcmc.split({"y": np.arange(first, first + n, dtype=float)}, 1)
        for first, n in zip(firsts, sizes, strict=True)
    ]
    return [
        EarlierShard(BatchShard(part, 0), size, size, place)
        for place, (part, size) in enumerate(zip(parts, sizes, strict=True))
    ]


def new_rows(count):
    return {"y": -1.0 - np.arange(count)}


def settings(**changes):
    return BatchSettings(dim=2, num_slots=2, num_shards=None, seed=0)._replace(**changes)


def sizes_of(plan):
    return [len(rows["y"]) for rows in plan.shards]


def test_a_large_batch_is_split_so_that_all_slots_are_busy():
    plan = plan_batch(new_rows(100_000), earlier_shards(50_000, 50_000), settings())
    assert sizes_of(plan) == [25_000] * 4
    assert not plan.replaced
    values = np.concatenate([rows["y"] for rows in plan.shards])
    np.testing.assert_array_equal(np.sort(values), np.sort(new_rows(100_000)["y"]))


def test_few_rows_are_merged_with_the_smallest_shard():
    plan = plan_batch(new_rows(7), earlier_shards(500, 60, 400), settings())
    assert sizes_of(plan) == [67]
    assert plan.replaced == {1}


def test_a_batch_that_can_be_sampled_alone_is_merged_with_small_shards_only():
    plan = plan_batch(new_rows(100), earlier_shards(50_000, 50_000), settings())
    assert sizes_of(plan) == [100]
    assert not plan.replaced
    plan = plan_batch(new_rows(100), earlier_shards(50_000, 300, 50_000), settings())
    assert sizes_of(plan) == [400]
    assert plan.replaced == {1}


def test_shards_as_small_as_the_users_are_left_alone():
    plan = plan_batch(new_rows(10), earlier_shards(10, 10), settings())
    assert sizes_of(plan) == [10]
    assert not plan.replaced


@pytest.mark.parametrize("least_size", [1_000, 10**9])
def test_shards_that_hold_too_little_are_merged_with_more(least_size):
    plan = plan_batch(new_rows(500), earlier_shards(600, 600, 600), settings(least_size=least_size))
    assert sum(sizes_of(plan)) == (1_100 if least_size == 1_000 else 2_300)
    assert plan.is_fixed == (least_size > 1_000)


def test_a_number_that_is_asked_for_is_kept():
    plan = plan_batch(new_rows(9), earlier_shards(500, 500), settings(num_shards=3))
    assert sizes_of(plan) == [3, 3, 3]
    assert plan.is_fixed


def test_many_small_updates_do_not_pile_up_shards():
    shards = earlier_shards(*[125] * 8)
    sampled = []
    for _ in range(300):
        plan = plan_batch(new_rows(20), shards, settings())
        kept = [shard for place, shard in enumerate(shards) if place not in plan.replaced]
        sampled.append(sum(sizes_of(plan)))
        parts = [vcmc.split(rows, 1) for rows in plan.shards]
        shards = kept + [
            EarlierShard(BatchShard(part, 0), n, n, 0)
            for part, n in zip(parts, sizes_of(plan), strict=True)
        ]
    assert sum(shard.size for shard in shards) == 1000 + 300 * 20
    assert len(shards) <= 70
    assert np.mean(sampled[100:]) < 0.04 * 7000  # rows that are sampled by an update


def test_rows_of_known_groups_go_to_their_shard():
    labels = np.array(["a", "b", "c"])
    shards = [
        EarlierShard(BatchShard(vcmc.split({"g": codes}, 1), 0, labels), n, len(codes), 0)
        for codes, n in ((np.array([0, 0, 2]), 2), (np.array([1, 1]), 1))
    ]
    rows = {"g": np.array(["b", "d", "b"])}
    plan = plan_batch(rows, shards, settings(group_column="g", num_shards=1))
    assert [part["g"].tolist() for part in plan.shards] == [["b", "b", "b", "b"], ["d"]]
    assert plan.replaced == {1}


def test_what_is_left_of_shards_stays_apart_unless_it_is_small():
    shards = earlier_shards(500, 500, 500)
    left = [{"y": np.arange(450.0)}, {"y": np.arange(3.0)}]
    plan = merge_small(left, shards, [0, 1], [0, 1], settings())
    assert sizes_of(plan) == [450, 503]
    assert plan.replaced == {0, 1, 2}
    assert plan.batches == [0, 2]
