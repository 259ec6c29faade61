"""A run is compared with the recorded one, and the differences are named."""

from pathlib import Path

import pytest

import vcmc
from vcmc.results.agreement import check_agreement

RUN = {
    "seed": 0,
    "num_shards": 2,
    "shard_draws": 100,
    "thin": 1,
    "prior": "subposterior",
    "sampler": "NUTS()",
    "model": "Model(a: Real())",
    "space": "a",
    "log_prior": ["1"],
    "log_likelihood": ["2"],
    "derived": [],
    "shards": ["x", "y"],
}


def differences(**changes):
    with pytest.raises(vcmc.StoreError, match="runs/a holds another run") as caught:
        check_agreement(Path("runs/a"), RUN, RUN | changes)
    return str(caught.value).removeprefix("runs/a holds another run: ")


def test_the_same_run_and_a_longer_one_agree():
    check_agreement(Path("runs/a"), RUN, RUN)
    check_agreement(Path("runs/a"), RUN, RUN | {"shard_draws": 200})
    check_agreement(Path("runs/a"), RUN, {k: v for k, v in RUN.items() if k != "sampler"})


def test_all_arguments_that_differ_are_named_with_both_values():
    text = differences(seed=1, thin=3)
    assert text.startswith("seed: the run has 0, given 1; thin: the run has 1, given 3. Use ")


def test_arguments_explain_other_differences():
    """Another seed gives other shards, and so another log likelihood."""
    text = differences(seed=1, shards=["v", "w"], log_likelihood=["3"])
    assert text.startswith("seed: the run has 0, given 1. ")


def test_rows_explain_another_likelihood_of_the_first_shard():
    text = differences(shards=["v", "y"], log_likelihood=["3"])
    assert text.startswith("the rows have changed (1 of 2 shards differs; the first is shard 0). ")


def test_a_changed_likelihood_is_one_of_the_model():
    assert "its log likelihood differs" in differences(log_likelihood=["3"])
    assert "the spaces of its parameters differ" in differences(space="b")
