"""Arguments of `infer` that are refused, and defaults that are filled in."""

import pytest

import vcmc
from vcmc.inference.request import Request


def request(**changes):
    arguments = {
        "seed": 0,
        "num_draws": None,
        "shard_draws": None,
        "error": None,
        "thin": 1,
        "sampler": None,
        "combiner": vcmc.combiners.Variational(),
        "executor": None,
        "prior": None,
        "store": None,
    }
    return Request.checked(**(arguments | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_draws": 3}, "num_draws must be an integer of at least 4; got 3"),
        ({"shard_draws": 2.5}, "shard_draws must be an integer of at least 4; got 2.5"),
        ({"error": 0.0}, r"error must be a number of posterior sds between 0.005 and 0.5"),
        ({"thin": 0}, "thin must be an integer of at least 1"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        request(**changes)


def test_a_goal_makes_the_combination_more_precise():
    """The more so the smaller it is; other combiners are taken as they are."""
    default, precise = request(), request(error=0.02)
    assert (default.num_draws, default.combiner.optimizer.max_noise) == (5000, 0.015)
    assert precise.combiner.optimizer.max_noise == pytest.approx(0.004)
    assert precise.num_draws > 5000
    consensus = vcmc.combiners.Consensus()
    assert request(error=0.02, combiner=consensus).combiner is consensus
