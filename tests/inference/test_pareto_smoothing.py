"""Smoothing of blocks of rows, against ArviZ, which smooths row after row."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import logsumexp

from vcmc.inference.pareto_smoothing import ROWS_AT_ONCE, leave_out

GENERATOR = np.random.default_rng(0)
NUM_ROWS = 12


def normal(num_draws):
    """Weights from light to heavy tails: k from below 0 to above 1."""
    scales = np.linspace(0.01, 3.0, NUM_ROWS)[:, None]
    return -0.5 * (scales * GENERATOR.normal(size=(NUM_ROWS, num_draws))) ** 2 - 1


def heavy(num_draws):
    """Likelihoods that differ by some orders of magnitude."""
    return 2 * GENERATOR.standard_t(2, size=(NUM_ROWS, num_draws))


def bounded(num_draws):
    """Weights with an upper bound: k is negative."""
    return GENERATOR.uniform(size=(NUM_ROWS, num_draws))


def nearly_constant(num_draws):
    return -1 - 1e-9 * GENERATOR.normal(size=(NUM_ROWS, num_draws))


def tied(num_draws):
    """Every value occurs twice, as after a rejected proposal."""
    half = GENERATOR.exponential(size=(NUM_ROWS, num_draws // 2))
    return -np.concatenate([half, half], axis=1)


def periodic(num_draws):
    """The tenth draws have the largest weights: they say nothing about the others."""
    rows = np.sort(normal(num_draws), axis=1)
    order = np.argsort(np.arange(num_draws) % 10 > 0, kind="stable")
    result = np.empty_like(rows)
    result[:, order] = rows
    return result


@pytest.mark.parametrize("efficiency", [1.0, 0.3, 1.7])
@pytest.mark.parametrize("num_draws", [50, 400, 3000])
@pytest.mark.parametrize("case", [normal, heavy, bounded, nearly_constant, tied, periodic])
def test_rows_have_the_terms_of_arviz(case, num_draws, efficiency):
    rows = case(num_draws)
    elpd, k, p = array_stats.loo(rows, chain_axis=None, r_eff=efficiency)
    assert np.isfinite([elpd, k, p]).all()
    result = leave_out(rows, efficiency)
    np.testing.assert_allclose(result.elpd, elpd, rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.k, k, rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.log_mean - result.elpd, p, rtol=0, atol=1e-10)


def test_cases_reach_good_and_bad_tails():
    k = np.concatenate([leave_out(case(3000), 1.0).k for case in (normal, bounded)])
    assert k.min() < -0.2
    assert k.max() > 0.9


def test_excesses_of_very_different_sizes_have_the_k_of_arviz():
    """Weights in the tail from 1 to exp(-300): products of their factors overflow."""
    rows = np.linspace(0, 1500, 400)[None]
    elpd, k, _ = array_stats.loo(rows, chain_axis=None, r_eff=1.0)
    assert np.isfinite(k).all()
    result = leave_out(rows, 1.0)
    np.testing.assert_allclose(result.k, k, rtol=1e-10)
    np.testing.assert_allclose(result.elpd, elpd, rtol=0, atol=1e-9)


def test_rows_do_not_depend_on_their_block():
    rows = 0.5 * GENERATOR.normal(size=(2 * ROWS_AT_ONCE + 3, 200))
    rows[5] = -1.0  # equal weights
    rows[7] = -np.linspace(0, 1e6, 200)  # all weights but one vanish
    together = leave_out(rows, 1.0)
    for number in (0, 5, 7, ROWS_AT_ONCE, len(rows) - 1):
        alone = leave_out(rows[number : number + 1], 1.0)
        for values, value in zip(together, alone, strict=True):
            np.testing.assert_allclose(values[number], value[0], rtol=1e-13)


@pytest.mark.parametrize("spread", [0.0, 1e-17, 2e-16])
def test_weights_that_rounding_alone_tells_apart_need_no_smoothing(spread):
    rows = -spread * GENERATOR.integers(0, 3, size=(4, 400))
    result = leave_out(rows, 1.0)
    assert result.k.tolist() == [0.0] * 4
    np.testing.assert_allclose(result.elpd, np.zeros(4), atol=1e-15)


def test_weights_without_a_pareto_tail_are_left_as_they_are():
    """A third of the tail equals the cutoff: ArviZ has no k, and we say that it is infinite."""
    rows = np.where(np.arange(400) < 20, np.linspace(-3, -2, 400), -1.0)[None]
    result = leave_out(rows, 1.0)
    assert result.k[0] == np.inf
    assert result.elpd[0] == pytest.approx(np.log(400) - logsumexp(-rows), rel=1e-12)
