"""The first stage: partitions, checks, the common start, and the plan of the chains."""

import numpy as np
import pytest

import vcmc
from vcmc.inference.clock import Clock
from vcmc.inference.partitioning import as_partition
from vcmc.inference.preparation import prepare, result_target
from vcmc.inference.request import Request
from vcmc.progress import ProgressDisplay
from vcmc.target import Target


def request(**changes):
    arguments = {
        "seed": 0,
        "num_draws": None,
        "shard_draws": 100,
        "error": None,
        "thin": 1,
        "sampler": None,
        "combiner": vcmc.combiners.Consensus(),
        "executor": None,
        "prior": None,
        "store": None,
    }
    return Request.checked(**(arguments | changes))


@pytest.mark.parametrize(
    ("prior", "powers"),
    [("subposterior", (1 / 4, 1.0)), ("partial", (1.0, 1.0)), ("powered", (1.0, 4.0))],
)
def test_the_prior_sets_the_powers_of_the_plan(prior, powers, conjugate):
    combiner = vcmc.combiners.Variational()
    partition = as_partition(conjugate.rows, 4, seed=0)
    with ProgressDisplay(False) as display:
        chosen = request(prior=prior, combiner=combiner, sampler=vcmc.samplers.NUTS())
        target = Target.fitted(conjugate.model, partition, chosen.executor)
        prepared = prepare(target, chosen, display, Clock())
    assert (prepared.plan.prior_power, prepared.plan.likelihood_power) == powers
    mean, covariance = conjugate.posterior()
    # the start is the mode of the full posterior, which is Gaussian
    assert (np.abs(prepared.plan.start - mean) < 1e-3 * np.sqrt(np.diag(covariance))).all()
    assert prepared.settings["prior"] == prior
    assert sum(prepared.settings["shard_sizes"]) == len(conjugate.rows["y"])


def test_the_target_of_a_result_is_the_full_log_density(conjugate):
    target = result_target(conjugate.model, conjugate.rows, 3, None, 0)
    mean, covariance = conjugate.posterior()
    _, scores = target(np.stack([mean, mean + np.sqrt(np.diag(covariance))]))
    np.testing.assert_allclose(scores[0], 0, atol=1e-6)
    expected = -np.linalg.solve(covariance, np.sqrt(np.diag(covariance)))
    np.testing.assert_allclose(scores[1], expected, rtol=1e-8)
