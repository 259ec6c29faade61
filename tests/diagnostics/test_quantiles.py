"""Errors of quantiles on log-gamma posteriors, whose quantiles are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

import vcmc
from vcmc.diagnostics.quantiles import LEVELS, quantiles_at
from vcmc.diagnostics.selfcheck import self_check
from vcmc.target import Target

SHAPE = 30.0


@pytest.fixture(scope="module")
def target():
    """Two independent logarithms of gamma variables."""
    model = vcmc.Model(
        {"theta": vcmc.Real(2)},
        lambda params: 0.0 * jnp.sum(params["theta"]),
        lambda params, rows: (
            rows["one"] / 4 * jnp.sum(SHAPE * params["theta"] - jnp.exp(params["theta"]))
        ),
    )
    partition = vcmc.split({"one": np.ones(4)}, 2)
    return Target(model, [partition.load(shard) for shard in range(2)], vcmc.executors.Local())


@pytest.mark.parametrize("are_exact", [True, False])
def test_quantiles_of_skewed_posteriors_are_off_as_estimated(are_exact, target):
    """Gaussian draws with the right mean and sd have quantiles that are 0.05 sd off."""
    mean, sd = digamma(SHAPE), np.sqrt(polygamma(1, SHAPE))
    truth = [np.log(stats.gamma.ppf(level, SHAPE)) for level in LEVELS]
    errors, estimates = [], []
    for seed in range(6):
        generator = np.random.default_rng(seed)
        draws = mean + sd * generator.normal(size=(5000, 2))
        if are_exact:
            draws = np.log(generator.gamma(SHAPE, size=(5000, 2)))
        found = self_check(draws, target, np.asarray, seed).errors
        quantiles = np.quantile(draws, LEVELS, axis=0)
        errors.append((quantiles - np.array(truth)[:, None]) / sd)
        estimates.append(((found.q05, found.q05_se), (found.q95, found.q95_se)))
    errors, estimates = np.array(errors), np.array(estimates)
    scores = (errors - estimates[:, :, 0]) / estimates[:, :, 1]
    # 24 scores that are about standard normal
    assert np.abs(scores).max() < 4
    assert np.mean(scores**2) < 2
    low, high = estimates[:, :, 0].mean(axis=(0, 2))
    error = 4 * estimates[:, :, 1].max() / np.sqrt(12)
    skewed = 0.0 if are_exact else 0.05
    assert low == pytest.approx(skewed, abs=error)
    assert high == pytest.approx(skewed, abs=error)


def test_quantiles_are_those_of_numpy():
    values = np.sort(np.random.default_rng(0).normal(size=(57, 3)), axis=0)
    levels = np.array([0.0, 0.31, 1.0])
    expected = [np.quantile(values[:, column], levels[column]) for column in range(3)]
    np.testing.assert_allclose(quantiles_at(values, levels), expected, rtol=1e-12)
