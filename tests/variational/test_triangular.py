"""Triangular maps: gradient, Jacobian and inverse, by differences and by each other."""

import numpy as np
import pytest
from scipy.special import ndtri

from vcmc.linalg.sobol import sobol_points
from vcmc.variational.triangular import MAX_LOG_SCALE, TriangularMap

STEP = 1e-5


@pytest.fixture
def bent():
    """A map of three coordinates with random parameters."""
    generator = np.random.default_rng(0)
    covariance = np.cov(generator.normal(size=(50, 3)).T)
    affine = TriangularMap.affine(generator.normal(size=3), covariance, (2, 0, 1))
    return affine.with_parameters(0.2 * generator.normal(size=len(affine.parameters)))


@pytest.fixture
def base():
    return np.random.default_rng(1).normal(size=(40, 3))


def test_without_parameters_a_map_is_affine():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    affine = TriangularMap.affine(np.array([1.0, -1.0]), covariance, (1, 0))
    points, log_det = affine(np.random.default_rng(0).normal(size=(20_000, 2)))
    np.testing.assert_allclose(log_det, 0.5 * np.linalg.slogdet(covariance)[1])
    # Monte Carlo error of entries of a covariance
    np.testing.assert_allclose(np.cov(points.T), covariance, atol=4 * 2 * np.sqrt(2 / 20_000))
    np.testing.assert_allclose(points.mean(axis=0), [1, -1], atol=4 * np.sqrt(2 / 20_000))


def test_log_determinants_are_those_of_the_jacobian(bent, base):
    _, log_det = bent(base[:3])
    for row in range(3):
        steps = STEP * np.eye(3)
        jacobian = (bent(base[row] + steps)[0] - bent(base[row] - steps)[0]) / (2 * STEP)
        # h is interpolated on a grid of 0.01
        assert np.linalg.slogdet(jacobian)[1] == pytest.approx(log_det[row], abs=0.02)


def test_gradients_are_those_of_the_objective(bent, base):
    def objective(parameters):
        forward = bent.with_parameters(parameters).forward(base)
        return np.mean(-0.1 * np.sum(forward.white**4, axis=1) + forward.log_det)

    forward = bent.forward(base)
    gradient = bent.gradient(forward, -0.4 * forward.white**3)
    steps = STEP * np.eye(len(gradient))
    differences = [
        objective(bent.parameters + step) - objective(bent.parameters - step) for step in steps
    ]
    np.testing.assert_allclose(gradient, np.array(differences) / (2 * STEP), atol=1e-6)


def test_the_curvature_is_that_of_a_normal_target():
    """By differences of the gradient, at evenly spread base points, where all terms are zero."""
    affine = TriangularMap.affine(np.zeros(2), np.eye(2), (1, 0))
    base = ndtri(sobol_points(2**14, 2, np.random.default_rng(0)))

    def gradient(parameters):
        bent = affine.with_parameters(parameters)
        forward = bent.forward(base)
        return bent.gradient(forward, -forward.white)

    steps = 1e-4 * np.eye(len(affine.parameters))
    differences = [(gradient(-step) - gradient(step)) / 2e-4 for step in steps]
    np.testing.assert_allclose(affine.curvature(base), differences, atol=0.02)


def test_the_inverse_leads_back(bent, base):
    base = np.concatenate([base, 4 * base])  # beyond the knots, too
    points, log_det = bent(base)
    back, same = bent.inverse(points)
    np.testing.assert_allclose(back, base, atol=1e-8)
    np.testing.assert_allclose(same, log_det, atol=1e-8)


def test_scales_are_bounded(bent):
    wild = bent.with_parameters(np.full_like(bent.parameters, 50.0))
    slices = wild.shape_slices()
    parameters = wild.parameters.copy()
    for part in slices:
        parameters[part] = 0.0
    forward = wild.with_parameters(parameters).forward(np.full((1, 3), 0.5))
    assert abs(forward.log_det[0]) <= 2 * MAX_LOG_SCALE
