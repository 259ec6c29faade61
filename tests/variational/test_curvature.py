"""Newton steps from both kinds of curvature reach a Gaussian target at once."""

import numpy as np
import pytest

from vcmc.linalg.operators import DenseOperator, DiagonalOperator
from vcmc.variational.curvature import (
    CoordinateCurvature,
    DenseCurvature,
    Evaluation,
    FrameCurvature,
)

MEAN = np.array([0.5, -1.0, 2.0])
DENSE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.7]])


def white_draws(count):
    """Return draws with mean zero and covariance I, to the last digits."""
    draws = np.random.default_rng(0).normal(size=(count, 3))
    draws -= draws.mean(axis=0)
    return np.linalg.solve(np.linalg.cholesky(draws.T @ draws / count), draws.T).T


def evaluation(precision, scale, count=200):
    """Return a Gaussian target at white draws, with shift zero."""
    white = white_draws(count)
    away = white @ scale.T - MEAN
    values = -0.5 * np.sum((away @ precision) * away, axis=1)
    return Evaluation(np.zeros(3), scale, white, values, -away @ precision)


def test_a_dense_step_ends_at_a_gaussian_target():
    start = evaluation(DENSE, DenseOperator.identity(3))
    step = DenseCurvature(DENSE).newton_step(start, lambda directions: directions, force=False)
    np.testing.assert_allclose(step.shift, MEAN, rtol=1e-8)
    covariance = step.scale.dense() @ step.scale.dense().T
    np.testing.assert_allclose(covariance, np.linalg.inv(DENSE), rtol=1e-8)
    # the gain is the Kullback-Leibler divergence between both Gaussians
    expected = 0.5 * (np.trace(DENSE) - 3 - np.linalg.slogdet(DENSE)[1] + MEAN @ DENSE @ MEAN)
    assert step.gain == pytest.approx(expected, rel=1e-8)


def test_an_indefinite_curvature_gives_no_step_unless_forced():
    precision = np.diag([1.0, 1.0, -0.5])
    start = evaluation(precision, DenseOperator.identity(3))
    curvature = DenseCurvature(precision)
    assert curvature.newton_step(start, lambda directions: directions, force=False) is None
    assert curvature.newton_step(start, lambda directions: directions, force=True) is not None


def test_a_step_by_coordinates_ends_at_a_diagonal_gaussian_target():
    precision = np.diag([2.0, 1.0, 0.7])
    start = evaluation(precision, DiagonalOperator.identity(3), count=20_000)
    step = CoordinateCurvature(3).newton_step(
        start, lambda directions: directions @ precision, force=False
    )
    np.testing.assert_allclose(step.shift, MEAN, rtol=0.05)  # conjugate gradients stop early
    np.testing.assert_allclose(step.scale.diagonals() ** -2, np.diag(precision), rtol=0.05)


def test_the_control_has_the_expectation_that_it_says():
    start = evaluation(DENSE, DenseOperator(np.diag([1.0, 2.0, 0.5])))
    second_moment = DenseOperator.second_moment(start.white)
    values, expected = DenseCurvature(DENSE).control(start, MEAN, second_moment)
    assert np.mean(values) == pytest.approx(expected, rel=1e-10)


def test_a_step_in_a_frame_ends_at_a_diagonal_gaussian_target():
    """The control variate has the wrong curvature, which costs nothing but noise."""
    diagonal = np.array([1.2, 1.0, 0.9])
    start = evaluation(np.diag(diagonal), DiagonalOperator(np.array([0.9, 1.0, 1.1])))
    step = FrameCurvature.identity(3).newton_step(
        start, lambda directions: pytest.fail("it needs no products"), force=False
    )
    np.testing.assert_allclose(step.scale.diagonals() ** -2, diagonal, rtol=0.01)
    np.testing.assert_allclose(step.shift, MEAN, rtol=0.01)
    np.testing.assert_allclose(step.curvature.diagonal, step.scale.diagonals() ** -2, rtol=1e-12)
    ratios = diagonal * start.scale.diagonals() ** 2
    expected = 0.5 * np.sum(ratios - 1 - np.log(ratios)) + 0.5 * MEAN @ (diagonal * MEAN)
    assert step.gain == pytest.approx(expected, rel=0.01)


def test_the_control_in_a_frame_has_the_expectation_that_it_says():
    start = evaluation(DENSE, DiagonalOperator(np.array([1.0, 2.0, 0.5])))
    second_moment = DiagonalOperator.second_moment(start.white)
    curvature = FrameCurvature(np.array([1.2, 1.0, 0.9]))
    values, expected = curvature.control(start, MEAN, second_moment)
    assert expected == pytest.approx(values.mean())
    exact = evaluation(np.diag(curvature.diagonal), start.scale)
    np.testing.assert_allclose(curvature.control(exact, MEAN, second_moment)[0], exact.values)
    residuals = curvature.residual_scores(exact)
    np.testing.assert_allclose(residuals, np.tile(curvature.diagonal * MEAN, (200, 1)))
