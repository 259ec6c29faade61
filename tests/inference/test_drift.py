"""Short chains that start at draws, right and wrong ones."""

import numpy as np
import pytest

from vcmc.inference.drift import drift
from vcmc.inference.preparation import result_target

NAMES = ["beta[0]", "beta[1]", "beta[2]"]


@pytest.fixture(scope="module")
def target(conjugate):
    return result_target(conjugate.model, conjugate.rows, 2, None, 0)


def draws(conjugate, shift=0.0, scale=1.0):
    mean, covariance = conjugate.posterior()
    noise = np.random.default_rng(0).multivariate_normal(np.zeros(3), covariance, size=1000)
    return mean + shift * np.sqrt(np.diag(covariance)) + scale * noise


def test_chains_stay_where_draws_are_right(conjugate, target):
    assert [drift(draws(conjugate), target, NAMES, seed) for seed in range(3)] == [""] * 3


def test_chains_leave_draws_that_are_shifted(conjugate, target):
    shifted = draws(conjugate, shift=np.array([0.0, 1.5, 0.0]))
    assert "the mean of beta[1] by -1." in drift(shifted, target, NAMES, seed=0)


def test_chains_spread_where_draws_are_too_narrow(conjugate, target):
    found = drift(draws(conjugate, scale=0.5), target, NAMES, seed=0)
    assert "the sd of beta" in found
    assert "by a factor of" in found
