"""Tiles: sums over groups are those of a loop, whatever the sizes of groups."""

import numpy as np
import pytest

from vcmc.data.tiles import TileLayout, joined_groups, tiled

SIZES = {
    "equal": [np.full(5, 20), np.full(4, 20)],
    "single rows": [np.ones(7, int)],
    "ragged": [np.array([1, 1, 2, 300, 5]), np.array([40, 1])],
    "one group": [np.array([1000])],
}


def layouts(sizes):
    layout = TileLayout.for_sizes(sizes)
    for shard in sizes:
        labels = np.repeat(np.arange(len(shard)), shard)
        yield layout, np.random.default_rng(0).permutation(labels)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_every_row_has_one_place_in_a_tile_of_its_group(sizes):
    for layout, labels in layouts(sizes):
        groups, numbers, weights = tiled(labels, layout)
        assert len(numbers) == layout.num_tiles * layout.tile_rows
        assert sorted(numbers[weights > 0].tolist()) == list(range(len(labels)))
        of_row = np.repeat(np.asarray(groups.of_tile), layout.tile_rows)
        assert (labels[numbers[weights > 0]] == of_row[weights > 0]).all()
        assert groups.num_groups == len(np.unique(labels))


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_sums_and_values_of_groups_are_those_of_a_loop(sizes):
    for layout, labels in layouts(sizes):
        groups, numbers, weights = tiled(labels, layout)
        values = np.random.default_rng(1).normal(size=len(labels))
        sums = np.asarray(groups.sum(values[numbers], weights))[: groups.num_groups]
        np.testing.assert_allclose(sums, np.bincount(labels, values), atol=1e-12)
        by_group = np.random.default_rng(2).normal(size=(layout.num_groups, 2))
        spread = np.asarray(groups.spread(by_group, len(numbers)))
        assert (spread[weights > 0] == by_group[labels[numbers[weights > 0]]]).all()
        first = np.asarray(groups.first_rows({"label": labels[numbers]})["label"])
        assert (first[: groups.num_groups] == np.arange(groups.num_groups)).all()


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_padding_costs_at_most_as_much_as_the_rows(sizes):
    layout = TileLayout.for_sizes(sizes)
    largest = max(int(shard.sum()) for shard in sizes)
    assert layout.num_tiles * layout.tile_rows <= 2 * largest + 2 * layout.tile_rows


def test_joined_groups_follow_each_other():
    parts = [tiled(labels, layout)[0] for layout, labels in layouts(SIZES["ragged"])]
    joint = joined_groups(parts)
    num_groups = len(parts[0].weights)
    assert len(joint.weights) == 2 * num_groups
    assert (np.diff(np.asarray(joint.of_tile)) >= 0).all()
    second = np.asarray(joint.of_tile)[len(parts[0].of_tile) :]
    assert (second == np.asarray(parts[1].of_tile) + num_groups).all()
