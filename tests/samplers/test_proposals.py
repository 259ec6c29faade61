import numpy as np
import pytest
from scipy import stats

import vcmc
from vcmc.executors import Local
from vcmc.samplers.proposals import MAX_POINTS, Proposal, systematic_resample
from vcmc.target import Target


@pytest.fixture(scope="module")
def target(conjugate):
    return Target(conjugate.model, vcmc.split(conjugate.rows, 3), Local())


@pytest.fixture(scope="module")
def draws(conjugate):
    """Draws beside the posterior, and twice as wide."""
    mean, covariance = conjugate.posterior()
    generator = np.random.default_rng(0)
    return generator.multivariate_normal(mean + 0.01, 4 * covariance, size=2000)


def test_weighted_proposals_have_the_moments_of_the_target(conjugate, target, draws):
    mean, covariance = conjugate.posterior()
    points, log_ratios = Proposal.of(draws).propose(20_000, target, np.random.default_rng(1))
    weights = np.exp(log_ratios - log_ratios.max())
    weights /= weights.sum()
    effective = 1 / np.sum(weights**2)
    assert effective > 1000
    sds = np.sqrt(np.diag(covariance))
    assert (np.abs(weights @ points - mean) < 4 * sds / np.sqrt(effective)).all()
    second = np.sqrt(weights @ (points - mean) ** 2) / sds
    assert (np.abs(second - 1) < 4 / np.sqrt(2 * effective)).all()


@pytest.mark.parametrize("wide", [0.0, 3.0])
def test_the_density_and_its_normalizer_are_those_of_scipy(draws, wide):
    proposal = Proposal.of(draws, wide)
    centre, covariance = draws.mean(axis=0), np.cov(draws.T, ddof=0)
    points = draws[:20]
    found = proposal.log_density(points) - proposal.log_normalizer
    scales = (1.0, wide) if wide else (1.0,)
    densities = [
        stats.multivariate_t(centre, scale**2 * covariance, proposal.freedom).pdf(points)
        for scale in scales
    ]
    np.testing.assert_allclose(np.exp(found), np.mean(densities, axis=0), rtol=1e-8)


def test_points_are_evaluated_in_batches(target, draws):
    calls = []
    proposals = Proposal.of(draws).propose(
        2 * MAX_POINTS + 1, target, np.random.default_rng(0), lambda: calls.append(1)
    )
    assert proposals.points.shape == (2 * MAX_POINTS + 1, 3)
    assert len(calls) == 3


def test_the_ratio_is_zero_where_the_target_is_not_finite(draws):
    def half(points):
        return np.where(np.arange(len(points)) % 2, np.nan, 0.0), np.zeros_like(points)

    _, log_ratios = Proposal.of(draws).propose(10, half, np.random.default_rng(0))
    np.testing.assert_array_equal(np.isneginf(log_ratios), np.arange(10) % 2 == 1)


@pytest.mark.parametrize("seed", range(3))
def test_systematic_resampling_rounds_expected_counts(seed):
    generator = np.random.default_rng(seed)
    weights = generator.uniform(size=20)
    counts = np.bincount(systematic_resample(weights, 100, generator), minlength=20)
    expected = 100 * weights / weights.sum()
    assert counts.sum() == 100
    assert (np.abs(counts - expected) < 1).all()
