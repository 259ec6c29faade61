"""Overlap: the same shard draws, the same posterior up to its error, a better start."""

import numpy as np
import pytest

import vcmc


@pytest.mark.parametrize("executor", ["Local", pytest.param("Processes", marks=pytest.mark.slow)])
def test_overlap_changes_nothing_but_the_start(executor, conjugate, tmp_path):
    made = vcmc.executors.Processes(2) if executor == "Processes" else vcmc.executors.Local()
    arguments = {"num_shards": 5, "num_draws": 1000, "executor": made}
    plain = vcmc.infer(conjugate.model, conjugate.rows, **arguments)
    trees = [
        vcmc.infer(conjugate.model, conjugate.rows, overlap=True, **arguments),
        vcmc.infer(conjugate.model, conjugate.rows, overlap=True, store=tmp_path, **arguments),
    ]
    mean, covariance = conjugate.posterior()
    for tree in trees:
        for group in ("subposterior", "sample_stats"):
            for name in plain[group].data_vars:
                np.testing.assert_array_equal(tree[group][name], plain[group][name])
        np.testing.assert_array_equal(tree["posterior"]["beta"], trees[0]["posterior"]["beta"])
        gaps = (tree["posterior"]["beta"].mean(("chain", "draw")) - mean) / np.sqrt(
            np.diag(covariance)
        )
        assert (np.abs(gaps) < 0.03).all()
        assert len(tree["optimization"]["objective"]) <= len(plain["optimization"]["objective"])
    made.close()


def test_overlap_is_for_combiners_that_optimise(conjugate):
    with pytest.raises(ValueError, match="overlap=True needs a combiner that optimizes"):
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=3,
            overlap=True,
            combiner=vcmc.combiners.Consensus(),
        )
