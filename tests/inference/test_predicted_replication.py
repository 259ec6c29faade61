"""Posterior checks of models that `predict` simulates: those with groups."""

import numpy as np
import pytest
from xarray import Dataset

import vcmc
from vcmc.inference import predicted_replication
from vcmc.results.tree import make_tree
from vcmc.testing.gaussians import varying_means

LABELS = [f"group {number:02d}" for number in range(24)]


@pytest.fixture(scope="module")
def tree():
    generator = np.random.default_rng(0)
    draws = {
        "mu": np.ones((2, 60, 2)),
        "tau": np.ones((2, 60)),
        "alpha": generator.normal(size=(2, 60, 24, 2)),
    }
    return make_tree({"posterior": draws}, {"num_shards": 2, "groups": "group"})


def predicted(tree, model, rows, name, *, draws, seed, progress):
    """Local values of every row's group, without noise."""
    del model, draws, seed, progress
    numbers = np.searchsorted(LABELS, rows["group"])
    values = tree["posterior"]["alpha"].to_numpy()[:, :, numbers]
    return Dataset({name: (("chain", "draw", "row", "entry"), values)})


@pytest.mark.parametrize("max_draws", [7, 1000])
def test_replicates_use_the_local_draws_of_every_group(tree, max_draws, monkeypatch):
    monkeypatch.setattr(predicted_replication, "predict", predicted)
    monkeypatch.setattr(predicted_replication, "MAX_PREDICTED_BYTES", 8 * 2 * 200 * max_draws)
    model, rows = varying_means()
    result = vcmc.posterior_check(
        tree, model, rows, "y", by="group", statistics=["largest"], num_draws=40, progress=False
    )
    assert [line.group for line in result.lines] == LABELS
    chosen = tree["posterior"]["alpha"].to_numpy()[:, ::3]
    expected = chosen.reshape(40, 24, 2).max(axis=2)
    # replicates of a block are those of its chains, one after the other
    np.testing.assert_array_equal(np.sort(result.replicated), np.sort(expected.T))
    largest = [rows["y"][rows["group"] == label].max() for label in LABELS]
    np.testing.assert_array_equal(result.observed, largest)


def test_trees_without_local_draws_are_refused(tree):
    model, rows = varying_means()
    without = make_tree({"posterior": {"mu": np.ones((1, 9, 2)), "tau": np.ones((1, 9))}}, {})
    with pytest.raises(
        ValueError, match=r"\['alpha'\], which the tree does not .*locals=\"draws\""
    ):
        vcmc.posterior_check(without, model, rows, "y", progress=False)
    with pytest.raises(ValueError, match="must be in memory for a posterior check"):
        vcmc.posterior_check(tree, model, "rows.parquet", "y", progress=False)
