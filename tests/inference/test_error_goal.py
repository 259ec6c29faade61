import numpy as np
import pytest

import vcmc


@pytest.mark.parametrize("error", [0, -1, 0.001, 2.0, "small", True])
def test_a_goal_is_a_number_of_sds(error, conjugate):
    with pytest.raises(ValueError, match=r"error must be a number of posterior sds between 0.005"):
        vcmc.infer(conjugate.model, conjugate.rows, num_shards=2, error=error)


def test_a_goal_that_is_reached_is_said(conjugate):
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=4, error=0.05, progress=False)
    assert tree.attrs["error_goal"] == 0.05
    assert tree.attrs["error_goal_reached"] == 1
    assert tree.attrs["num_draws"] > 5000
    mean, covariance = conjugate.posterior()
    draws = tree["posterior"]["beta"].to_numpy().reshape(-1, len(mean))
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))).max() < 0.05


def test_a_goal_that_is_missed_makes_a_result_doubtful(conjugate):
    """Twenty draws of a shard, given by the user, and no refinement that could reach 0.005 sd."""
    options = {"num_shards": 4, "shard_draws": 20, "num_draws": 100, "progress": False}
    with pytest.warns(vcmc.DoubtfulWarning, match="error goal of 0.005 sd was not reached"):
        tree = vcmc.infer(conjugate.model, conjugate.rows, error=0.005, **options)
    assert tree.attrs["error_goal_reached"] == 0
    assert tree.attrs["verdict"] in ("doubtful", "poor")
