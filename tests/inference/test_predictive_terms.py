"""The terms of rows, against ArviZ and against formulas."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import logsumexp

from vcmc.inference.predictive_terms import LooTerms, waic_terms

LOG_LIKELIHOODS = 0.3 * np.random.default_rng(0).normal(size=(5, 400)) ** 2 - 1


@pytest.mark.parametrize("efficiency", [1.0, 0.4])
def test_loo_is_arvizs(efficiency):
    terms = LooTerms(efficiency)(LOG_LIKELIHOODS)
    log_weights, k = array_stats.psislw(LOG_LIKELIHOODS, r_eff=efficiency)
    elpd = logsumexp(log_weights + LOG_LIKELIHOODS, axis=1)
    np.testing.assert_allclose(terms["elpd"], elpd, rtol=1e-12)
    np.testing.assert_allclose(terms["k"], k, rtol=1e-12)
    log_means = np.log(np.mean(np.exp(LOG_LIKELIHOODS), axis=1))
    np.testing.assert_allclose(terms["p"], log_means - elpd, rtol=1e-9)


def test_rows_that_the_draws_agree_on_are_predicted_exactly():
    """ArviZ refuses weights whose largest values are equal. The other rows are not affected."""
    rows = LOG_LIKELIHOODS.copy()
    rows[1] = -0.7
    rows[3] = np.where(np.arange(400) % 2, -1.0, -2.0)
    terms, others = LooTerms(1.0)(rows), LooTerms(1.0)(LOG_LIKELIHOODS)
    assert terms["elpd"][1] == pytest.approx(-0.7)
    assert terms["p"][1] == pytest.approx(0.0, abs=1e-12)
    # the harmonic mean of likelihoods exp(-1) and exp(-2)
    assert terms["elpd"][3] == pytest.approx(-np.log((np.e + np.e**2) / 2))
    assert terms["k"][[1, 3]].tolist() == [0.0, 0.0]
    for name in terms:
        np.testing.assert_allclose(terms[name][[0, 2, 4]], others[name][[0, 2, 4]], rtol=1e-12)


def test_a_row_that_one_draw_decides_has_an_infinite_k():
    """Likelihoods from 1 to exp(-1e6): all weights but that of the last draw vanish."""
    rows = LOG_LIKELIHOODS.copy()
    rows[1] = -np.linspace(0, 1e6, 400)
    terms, others = LooTerms(1.0)(rows), LooTerms(1.0)(LOG_LIKELIHOODS)
    assert terms["k"][1] == np.inf
    assert terms["elpd"][1] == pytest.approx(np.log(400) + rows[1].min(), rel=1e-12)
    for name in terms:
        np.testing.assert_allclose(terms[name][[0, 2]], others[name][[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_a_row_that_is_not_finite_has_no_terms(value):
    rows = LOG_LIKELIHOODS.copy()
    rows[2, 7] = value
    others = [0, 1, 3, 4]
    terms = LooTerms(1.0)(rows)
    assert np.isnan(terms["elpd"]).tolist() == [False, False, True, False, False]
    np.testing.assert_array_equal(
        terms["elpd"][others], LooTerms(1.0)(LOG_LIKELIHOODS)["elpd"][others]
    )
    assert not np.isfinite(waic_terms(rows)["elpd"][2])


def test_waic_is_its_formula():
    terms = waic_terms(LOG_LIKELIHOODS)
    variances = LOG_LIKELIHOODS.var(axis=1, ddof=1)
    np.testing.assert_allclose(terms["p"], variances)
    log_means = np.log(np.mean(np.exp(LOG_LIKELIHOODS), axis=1))
    np.testing.assert_allclose(terms["elpd"], log_means - variances, rtol=1e-12)
