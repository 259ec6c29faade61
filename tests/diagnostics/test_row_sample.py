"""A part of the rows that stands for all."""

import numpy as np
import pytest

import vcmc
from vcmc.data.shard_list import BatchShard, batches_partition
from vcmc.diagnostics.row_sample import RowSample
from vcmc.target import Target


def test_a_sample_of_rows_is_exact_to_first_order_at_its_anchor(conjugate):
    target = Target(conjugate.model, vcmc.split(conjugate.rows, 40), vcmc.executors.Local())
    anchor = np.array([0.3, -0.2, 0.1])
    sample = RowSample.of_shards(target, range(0, 40, 4), anchor)
    points = np.stack([anchor, np.zeros(3), np.ones(3)])
    values, scores = sample(points)
    np.testing.assert_allclose(scores[0], target(anchor[None])[1][0], rtol=1e-9, atol=1e-8)
    # a Gaussian posterior's values differ by the quadratic part, whose curvature is the sample's
    curvature = sample.curvature(anchor)
    steps = points - anchor
    expected = steps @ np.asarray(scores[0])
    expected -= 0.5 * np.einsum("ni,ij,nj->n", steps, curvature, steps)
    np.testing.assert_allclose(values - values[0], expected, rtol=1e-6, atol=1e-6)
    # a quarter of the rows: the curvature is that of all, up to their noise
    ratios = np.linalg.eigvals(np.linalg.solve(target.curvature(anchor), curvature)).real
    assert 0.5 < ratios.min() < ratios.max() < 2


def test_few_rows_are_not_sampled(conjugate):
    target = Target(conjugate.model, vcmc.split(conjugate.rows, 3), vcmc.executors.Local())
    assert RowSample.of(target, np.zeros(3)) is None


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_uneven_shards_are_sampled_in_equal_shares(weights, is_cut, monkeypatch):
    """Batches differ: with rows of one of them alone, values would be far off."""
    if not is_cut:  # as if these rows were many
        monkeypatch.setattr("vcmc.target.MAX_JOINED_BYTES", 2**10)
        monkeypatch.setattr("vcmc.diagnostics.row_sample.MAX_PIECE_BYTES", 2**17)
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * (params["theta"] / 10) ** 2,
        lambda params, rows: -0.5 * rows["s"] * (rows["y"] - params["theta"]) ** 2,
    )
    generator = np.random.default_rng(0)
    shards = []
    for count, scale in ((40_000, 1.0), (180_000, 5.0), (300_000, 0.2)):
        rows = {"y": generator.normal(size=count), "s": np.full(count, scale), "w": np.ones(count)}
        partition = vcmc.split(rows, 2, seed=1)
        shards += [BatchShard(partition, number) for number in range(2)]
    full = Target(model, batches_partition(shards, weights), vcmc.executors.Local())
    anchor = np.array([0.5])
    sample = RowSample.of(full, anchor)
    num_rows = sum(last - first for task in sample.tasks for first, last in task.piece.ranges)
    assert num_rows < 260_000
    assert {shard for task in sample.tasks for shard in task.shards} == set(range(6))
    assert is_cut or all(len(task.shards) == 1 for task in sample.tasks)
    points = np.array([[0.5], [0.0], [2.0], [-5.0]])
    (values, scores), (expected, expected_scores) = sample(points), full(points)
    np.testing.assert_allclose(scores[0], expected_scores[0], rtol=1e-9)
    np.testing.assert_allclose(values - values[0], expected - expected[0], rtol=1e-3)
    np.testing.assert_allclose(sample.curvature(anchor), full.curvature(anchor), rtol=1e-3)


@pytest.mark.parametrize(
    ("counts", "is_sampled"), [((50_000, 52_000), True), ((9_000, 90_000), False)]
)
def test_shards_too_large_for_pieces_are_sampled_if_they_are_about_as_large(
    monkeypatch, counts, is_sampled
):
    monkeypatch.setattr("vcmc.target.MAX_JOINED_BYTES", 2**10)
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * params["theta"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["theta"]) ** 2,
    )
    shards = []
    for count in counts:
        y = np.random.default_rng(count).normal(size=8 * count)
        shards += [BatchShard(vcmc.split({"y": y}, 8), number) for number in range(8)]
    full = Target(model, batches_partition(shards), vcmc.executors.Local())
    sample = RowSample.of(full, np.array([0.0]))
    assert (sample is not None) == is_sampled
    if is_sampled:
        assert [task.shards for task in sample.tasks] == [(0,), (8,)]
