"""Stein's identities against Gaussians, where they are exact."""

import numpy as np
import pytest

from vcmc.linalg.stein import bounded_inverse_root, conjugate_gradients, stein_estimate


@pytest.fixture
def gaussian():
    """White draws, and a Gaussian target of another mean and precision."""
    generator = np.random.default_rng(0)
    root = generator.normal(size=(4, 4))
    return generator.normal(size=(50, 4)), generator.normal(size=4), root @ root.T + np.eye(4)


def test_a_gaussian_target_is_estimated_exactly(gaussian):
    white, mean, precision = gaussian
    estimate = stein_estimate(white, (mean - white) @ precision, precision)
    np.testing.assert_allclose(
        np.linalg.solve(estimate.precision, estimate.mean_score), mean, rtol=1e-10
    )
    np.testing.assert_allclose(estimate.precision, precision, rtol=1e-10)
    np.testing.assert_allclose(estimate.nonlinear_scores, 0, atol=1e-10)


def test_a_wrong_guess_of_the_curvature_is_corrected_by_the_scores(gaussian):
    _, mean, precision = gaussian
    white = np.random.default_rng(1).normal(size=(20_000, 4))
    estimate = stein_estimate(white, (mean - white) @ precision, np.eye(4))
    # residuals, and their noise, are as large as the guess is wrong: 0.7 % of that for 20 000 draws
    assert np.abs(estimate.precision - precision).max() < 0.05 * np.abs(precision).max()


def test_noise_is_not_taken_for_curvature():
    """Residuals that are independent of the draws look nonlinear in many dimensions."""
    generator = np.random.default_rng(2)
    white, noise = generator.normal(size=(2, 60, 50))
    estimate = stein_estimate(white, noise - white, np.eye(50))
    assert np.linalg.norm(estimate.precision - np.eye(50)) < 2
    assert np.linalg.norm(noise.T @ white / 60) > 6  # what it would be, taken at its word


def test_the_root_is_symmetric_and_bounded():
    precision = np.diag([4.0, -1.0, 1e-9])
    root, least = bounded_inverse_root(precision, 0.01)
    np.testing.assert_allclose(root, np.diag([0.5, 1.0, 10.0]))
    assert least == -1.0


def test_conjugate_gradients_solve(gaussian):
    _, mean, precision = gaussian
    estimate = conjugate_gradients(
        lambda direction: precision @ direction, precision @ mean, np.ones(4)
    )
    # it ends at a residual of two hundredths of the goal, in the norm of the preconditioner
    assert np.linalg.norm(precision @ (estimate - mean)) < 0.02 * np.linalg.norm(precision @ mean)
    backwards = conjugate_gradients(lambda direction: -direction, mean, np.ones(4))
    np.testing.assert_array_equal(backwards, mean)  # not positive definite: a step along the slope


def test_a_precision_that_is_not_finite_counts_as_negative():
    root, least = bounded_inverse_root(np.array([[1.0, np.nan], [np.nan, 2.0]]), 0.1)
    assert least == -np.inf
    np.testing.assert_array_equal(root, np.eye(2))
