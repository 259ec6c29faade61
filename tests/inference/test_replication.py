"""Blocks of draws, summaries by group, and their order over shards."""

import numpy as np

from vcmc.diagnostics.merged_statistics import Moments
from vcmc.inference.replication import (
    ALL_ROWS,
    Response,
    WithoutColumns,
    draw_blocks,
    merged_parts,
    parts_of,
)

RESPONSE = Response("y", "y", "region", (Moments,), keep_values=True)


def test_blocks_of_draws_are_equally_large_but_the_last():
    points = np.arange(10.0)[:, None]
    blocks = draw_blocks(points, num_values=5, max_bytes=8 * 5 * 4)
    assert [(first, len(block)) for first, block in blocks] == [(0, 4), (4, 4), (8, 2)]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), points)
    assert len(draw_blocks(points, num_values=0, max_bytes=8)) == 1
    # a replicate that is larger than a block is whole
    assert [len(block) for _, block in draw_blocks(points, num_values=9, max_bytes=8)] == [1] * 10


def test_parts_are_merged_by_group_in_the_order_of_the_rows():
    values = np.random.default_rng(0).normal(size=(8, 3))
    groups = np.array([2, 5, 5, 2, 2, 9, 5, 2])
    numbers = [np.array([7, 0, 3]), np.array([1, 2, 4, 5, 6])]
    shards = [parts_of(values[rows], groups[rows], RESPONSE) for rows in numbers]
    merged = merged_parts(shards, numbers)
    assert list(merged) == [2, 5, 9]
    for group, part in merged.items():
        expected = values[groups == group]
        np.testing.assert_array_equal(part.rows, np.flatnonzero(groups == group))
        np.testing.assert_array_equal(part.values, expected)
        np.testing.assert_allclose(part.summaries[Moments].mean, expected.mean(axis=0), rtol=1e-14)


def test_values_of_several_entries_per_row_are_summarized_together():
    values = np.random.default_rng(0).normal(size=(8, 3, 2, 4))
    part = parts_of(values, None, RESPONSE._replace(keep_values=False))[ALL_ROWS]
    assert part.values is None
    assert part.summaries[Moments].num_values == 64
    np.testing.assert_allclose(part.summaries[Moments].mean, values.mean(axis=(0, 2, 3)))


def test_columns_are_hidden_from_a_simulator():
    simulate = WithoutColumns(lambda key, params, rows: (key, params, sorted(rows)), frozenset("b"))
    assert simulate(1, 2, {"a": 0, "b": 0}) == (1, 2, ["a"])
