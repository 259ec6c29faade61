"""Blocks of groups have the groups of a shard, with their rows, in order."""

import numpy as np
import pytest

import vcmc
from vcmc.data.group_blocks import group_blocks, num_blocks
from vcmc.data.grouped import GroupedPartition

SIZES = {"equal": np.full(23, 5), "ragged": np.random.default_rng(0).integers(1, 200, 23)}


@pytest.mark.parametrize("kind", SIZES)
def test_blocks_have_the_sums_and_first_rows_of_groups(kind):
    sizes = SIZES[kind]
    group = np.random.default_rng(1).permutation(np.repeat(np.arange(23), sizes))
    rows = {"g": group, "y": np.arange(len(group), dtype=float)}
    shard = GroupedPartition(vcmc.split(rows, 1, groups="g"), "g").load(0)
    blocks = list(group_blocks(shard, 5))
    assert len(blocks) == num_blocks(23, 5) == 5
    assert len({len(block.weights) for block in blocks}) == 1
    assert [block.groups.num_groups for block in blocks] == [5, 5, 5, 5, 3]
    sums = [np.asarray(block.groups.sum(block.rows["y"], block.weights)) for block in blocks]
    together = np.concatenate([part[:5] for part in sums])[:23]
    np.testing.assert_array_equal(together, np.bincount(group, rows["y"]))
    firsts = [np.asarray(block.groups.first_rows(block.rows)["g"]) for block in blocks]
    np.testing.assert_array_equal(np.concatenate(firsts)[:23], np.arange(23))
    spread = blocks[1].groups.spread(np.arange(5.0), len(blocks[1].weights))
    is_row = np.asarray(blocks[1].weights) > 0
    np.testing.assert_array_equal(spread[is_row] + 5, blocks[1].rows["g"][is_row])


def test_a_shard_of_few_groups_is_its_own_block():
    rows = {"g": np.arange(4), "y": np.arange(4.0)}
    shard = GroupedPartition(vcmc.split(rows, 1, groups="g"), "g").load(0)
    (block,) = group_blocks(shard, 4)
    assert block is shard
