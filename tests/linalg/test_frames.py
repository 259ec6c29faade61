"""Frames of known curvatures, and the way to one from a point far from the mode."""

import numpy as np
import pytest

from vcmc.linalg.frames import (
    MAX_FRAME_DISTANCE_SD,
    LocalDensity,
    find_frame,
    frame_of_curvature,
    is_near,
)
from vcmc.linalg.operators import DenseOperator, DiagonalOperator

CURVATURE = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, -0.2], [0.0, -0.2, 0.5]])
INDEFINITE = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
CENTRE = np.array([1.0, -2.0, 0.5])


def test_a_curvature_is_the_identity_in_its_frame():
    root = frame_of_curvature(CENTRE, CURVATURE).root
    np.testing.assert_allclose(root.values.T @ CURVATURE @ root.values, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(root.values @ root.inverse_values, np.eye(3), atol=1e-12)
    assert root.log_det() == pytest.approx(np.linalg.slogdet(root.values)[1])


def test_negative_curvature_counts_by_its_size_and_infinite_curvature_gives_no_frame():
    root = frame_of_curvature(CENTRE, INDEFINITE).root
    absolute = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 4.0]])  # eigenvalues 3, 1, 4
    np.testing.assert_allclose(root.values @ root.values.T, np.linalg.inv(absolute), atol=1e-12)
    np.testing.assert_allclose(root.values @ root.inverse_values, np.eye(3), atol=1e-12)
    assert root.log_det() == pytest.approx(np.linalg.slogdet(root.values)[1])
    assert frame_of_curvature(CENTRE, np.full((3, 3), np.nan)) is None


@pytest.mark.parametrize("curvature", [CURVATURE, INDEFINITE])
def test_a_frame_operator_is_its_matrix(curvature):
    root = frame_of_curvature(CENTRE, curvature).root
    matrix, rows = root.values, np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_allclose(root @ rows[0], matrix @ rows[0], rtol=1e-12)
    np.testing.assert_allclose(rows @ root.T, rows @ matrix.T, rtol=1e-12)
    np.testing.assert_allclose(root.solve(rows), np.linalg.solve(matrix, rows.T).T, rtol=1e-9)
    np.testing.assert_allclose(root.inverse() @ rows[0], root.solve(rows[0]), rtol=1e-12)
    assert root.inverse().log_det() == -root.log_det()
    inner = DenseOperator(CURVATURE)
    np.testing.assert_allclose(root.congruence(inner).values, matrix @ CURVATURE @ matrix.T)
    similar = matrix @ CURVATURE @ np.linalg.inv(matrix)
    np.testing.assert_allclose(root.similarity(inner).values, similar, atol=1e-12)
    diagonals = DiagonalOperator(rows)
    expected = [np.diag(matrix @ np.diag(row) @ np.linalg.inv(matrix)) for row in rows]
    np.testing.assert_allclose(root.similar_diagonals(diagonals), expected, atol=1e-12)
    scaled = root.scaled(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(scaled.values @ scaled.inverse_values, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(scaled @ rows[0], matrix @ (rows[0] * [1.0, 2.0, 3.0]), rtol=1e-12)
    assert scaled.log_det() == pytest.approx(root.log_det() + np.log(6))


def poisson(counts):
    """Logarithms of rates with a flat prior: a density whose curvature grows with the rates."""
    evaluations, curvatures = [], []

    def evaluate(points):
        evaluations.append(len(points))
        return points @ counts - np.exp(points).sum(axis=1), counts - np.exp(points)

    def curvature(point):
        curvatures.append(point)
        return np.diag(np.exp(point))

    return LocalDensity(evaluate, curvature), curvatures


def test_a_frame_near_the_mode_is_made_at_the_point_itself():
    counts = np.array([20.0, 50.0, 100.0])
    density, curvatures = poisson(counts)
    point = np.log(counts) + 0.1 / np.sqrt(counts)  # a tenth of an sd
    frame = find_frame(density, point)
    np.testing.assert_array_equal(frame.centre, point)
    assert len(curvatures) == 1


def test_a_point_far_from_the_mode_has_a_frame_on_the_way_to_it():
    counts = np.array([20.0, 50.0, 100.0])
    density, curvatures = poisson(counts)
    mode = np.log(counts)
    frame = find_frame(density, mode + 1.0)  # 4 to 10 sds
    assert is_near(frame, mode)
    assert not is_near(frame, mode + 1.0)
    assert 1 < len(curvatures) <= 3


def test_a_density_that_is_not_finite_has_no_frame():
    density = LocalDensity(
        lambda points: (np.full(len(points), np.nan), np.full_like(points, np.nan)),
        lambda point: np.full((len(point), len(point)), np.nan),
    )
    assert find_frame(density, np.zeros(3)) is None


def test_nearness_is_counted_in_sds_per_coordinate():
    frame = frame_of_curvature(CENTRE, CURVATURE)
    step = np.full(3, MAX_FRAME_DISTANCE_SD)
    assert is_near(frame, frame.unwhiten(0.99 * step))
    assert not is_near(frame, frame.unwhiten(1.01 * step))
