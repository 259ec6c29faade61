"""Corrections of draws of a Gaussian with another mean and other sds, in closed form."""

import numpy as np
import pytest

from vcmc.diagnostics.coordinates import Coordinates
from vcmc.diagnostics.corrections import estimate_corrections, jackknife_samples
from vcmc.linalg.operators import DenseOperator, DiagonalOperator
from vcmc.linalg.whitening import Whitening

MEAN, SDS = np.array([0.3, -2.0, 0.0]), np.array([0.5, 1.0, 1.7])


@pytest.mark.parametrize("kind", ["dense", "frame", "coordinates"])
def test_a_gaussian_is_corrected_exactly(kind):
    draws = np.random.default_rng(0).normal(size=(100, 3))
    white = Whitening.from_draws(draws).whiten(draws)
    root = DenseOperator(np.eye(3)) if kind == "dense" else DiagonalOperator(np.ones(3))
    curvature = SDS**-2 if kind == "frame" else None
    coordinates = Coordinates(Whitening(np.zeros(3), root), curvature)
    scores = (MEAN - white) / SDS**2
    estimate = estimate_corrections(coordinates, white, scores, lambda steps: steps / SDS**2)
    assert len(estimate.corrections) == len(jackknife_samples(100))
    first = estimate.corrections[0]
    np.testing.assert_allclose(first.shift, MEAN, atol=1e-6)
    np.testing.assert_allclose(first.scale @ np.eye(3), np.diag(SDS), atol=1e-6)
    assert first.size == pytest.approx(2.0)
    assert np.abs(estimate.nonlinear_scores).max() < 1e-6
    assert estimate.least_curvature == pytest.approx(SDS.max() ** -2)
