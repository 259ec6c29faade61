"""Pointwise values of blocks of rows are those of the whole matrix of draws and rows."""

import numpy as np
import pytest

import vcmc
from vcmc.executors import Local
from vcmc.inference import pointwise as module
from vcmc.inference.partitioning import as_partition
from vcmc.inference.pointwise import Unit, pointwise, unit_log_likelihoods
from vcmc.target import Target
from vcmc.testing.gaussians import varying_means

NUM_DRAWS = 70


@pytest.fixture
def points():
    return np.random.default_rng(1).normal(size=(NUM_DRAWS, 3))


class Recorded:
    """Return all log likelihoods, and remember the shapes of blocks."""

    def __init__(self):
        self.shapes = []

    def __call__(self, log_likelihoods):
        self.shapes.append(log_likelihoods.shape)
        return {"all": log_likelihoods, "mean": log_likelihoods.mean(axis=1)}


@pytest.mark.parametrize("max_rows", [1, 64, 10**6])
def test_blocks_of_rows_make_up_the_matrix(conjugate, points, monkeypatch, max_rows):
    """Shards of 168 and 167 rows: the latter are padded, and the last block overlaps."""
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 8 * NUM_DRAWS * max_rows)
    rows = conjugate.rows if max_rows > 1 else {n: a[:40] for n, a in conjugate.rows.items()}
    partition = vcmc.split(rows, 6)
    reduction, advanced = Recorded(), []
    parts = pointwise(
        Target(conjugate.model, partition, Local()), points, reduction, advanced.append
    )
    matrix = -0.5 * (rows["y"] - points @ rows["x"].T) ** 2
    for part, members in zip(parts, partition.members, strict=True):
        np.testing.assert_allclose(part["all"], matrix[:, members].T, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(part["mean"], matrix[:, members].mean(axis=0), rtol=1e-10)
    assert max(shape[0] for shape in reduction.shapes) <= max_rows
    assert {shape[1] for shape in reduction.shapes} == {NUM_DRAWS}
    assert sum(advanced) == len(rows["y"])


def test_wide_rows_are_copied_in_blocks(points, monkeypatch):
    """A block is limited by its rows, too: few draws would allow for many."""
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 8 * 1000 * 20)
    rows = {"x": np.random.default_rng(0).normal(size=(90, 999))}
    model = vcmc.Model(
        space={"mean": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2,
        log_likelihood=lambda params, rows: -0.5 * (rows["x"][:, 5] - params["mean"]) ** 2,
    )
    reduction = Recorded()
    (part,) = pointwise(Target(model, vcmc.split(rows, 1), Local()), points[:2, :1], reduction)
    assert max(shape[0] for shape in reduction.shapes) <= 20
    np.testing.assert_allclose(part["all"], -0.5 * (rows["x"][:, 5:6] - points[:2, 0]) ** 2)


@pytest.mark.parametrize("max_groups", [3, 10**6])
def test_groups_add_up_to_the_log_density(points, monkeypatch, max_groups):
    """The sum of log marginals over groups is the full log density less the log prior."""
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 8 * NUM_DRAWS * max_groups)
    model, rows = varying_means()
    partition = as_partition(rows, 3, 0, local=model.local)
    target = Target.fitted(model, partition, Local())
    reduction = Recorded()
    parts = pointwise(target, points, reduction)
    assert [len(part["mean"]) for part in parts] == [len(numbers) for numbers in partition.members]
    assert max(shape[0] for shape in reduction.shapes) <= max_groups
    sums = sum(part["all"].sum(axis=0) for part in parts)
    log_priors = [float(model.log_prior_at(point)) for point in points]
    np.testing.assert_allclose(sums, np.asarray(target(points)[0]) - log_priors, rtol=1e-9)


@pytest.mark.parametrize("has_groups", [False, True])
def test_a_unit_has_the_log_likelihoods_of_its_block(conjugate, points, monkeypatch, has_groups):
    """Blocks of at most three rows, or groups; shards of unequal sizes are padded."""
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 8 * NUM_DRAWS * 3)
    model, rows = varying_means() if has_groups else (conjugate.model, conjugate.rows)
    if not has_groups:
        rows = {name: array[:20] for name, array in rows.items()}
    partition = as_partition(rows, 3, 0, local=model.local)
    target = Target.fitted(model, partition, Local())
    parts = pointwise(target, points, Recorded())
    for shard, part in enumerate(parts):
        for position in (0, 3, len(part["mean"]) - 1):
            values = unit_log_likelihoods(target, Unit(shard, position), points)
            np.testing.assert_allclose(values, part["all"][position], rtol=1e-10)
