"""Whitened coordinates against draws and densities of known covariance."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.linalg.operators import MAX_DENSE_DIM, DiagonalOperator
from vcmc.linalg.whitening import MAX_EIGEN_DIM, Whitening

COVARIANCE = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, -0.2], [0.0, -0.2, 0.5]])


@pytest.fixture
def draws():
    return 3 + np.random.default_rng(0).multivariate_normal(np.zeros(3), COVARIANCE, size=200)


def test_draws_become_white_and_come_back(draws):
    whitening = Whitening.from_draws(draws)
    white = whitening.whiten(draws)
    assert whitening.is_dense
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(whitening.unwhiten(white), draws, rtol=1e-12)
    np.testing.assert_allclose(whitening.unwhiten_point(white[0]), draws[0], rtol=1e-12)
    steps = whitening.unwhiten_directions(white[1:] - white[:-1])
    np.testing.assert_allclose(steps, np.diff(draws, axis=0), rtol=1e-9, atol=1e-12)


def test_whitened_scores_of_a_gaussian_are_minus_the_points(draws):
    whitening = Whitening.from_draws(draws)
    precision = np.linalg.inv(np.cov(draws.T, bias=True))
    scores = (draws.mean(axis=0) - draws) @ precision
    np.testing.assert_allclose(
        whitening.whiten_scores(scores), -whitening.whiten(draws), atol=1e-10
    )


@pytest.mark.parametrize(("num_draws", "dim"), [(4, 3), (1200, MAX_DENSE_DIM + 1)])
def test_few_draws_or_many_coordinates_have_unit_variances_only(num_draws, dim):
    draws = np.random.default_rng(0).normal(size=(num_draws, dim)) * np.linspace(1, 3, dim)
    whitening = Whitening.from_draws(draws)
    assert not whitening.is_dense
    assert isinstance(whitening.root, DiagonalOperator)
    np.testing.assert_allclose(whitening.whiten(draws).std(axis=0), 1, rtol=1e-12)


def test_curvature_becomes_the_identity():
    curvature = np.linalg.inv(COVARIANCE)
    root = Whitening.from_curvature(jnp.zeros(3), jnp.asarray(curvature)).root
    matrix = np.asarray(root.values)
    np.testing.assert_allclose(matrix.T @ curvature @ matrix, np.eye(3), atol=1e-10)


@pytest.mark.parametrize("largest", [30.0, 1e3])
def test_curvature_becomes_the_identity_in_any_units(largest):
    """One coordinate has an sd of 10⁻⁴: the curvature along it is up to 10¹⁴ times another's."""
    units = np.array([1e-4, 1.0, largest])
    curvature = np.linalg.inv(COVARIANCE) / np.outer(units, units)
    root = Whitening.from_curvature(jnp.zeros(3), jnp.asarray(curvature)).root
    np.testing.assert_allclose(
        root.values @ root.values.T / np.outer(units, units), COVARIANCE, atol=1e-9
    )


def test_a_coordinate_without_curvature_has_a_large_width_that_is_finite():
    curvature = jnp.diag(jnp.array([1e8, 1e-6, 0.0]))
    sds = Whitening.from_curvature(jnp.zeros(3), curvature).sds
    np.testing.assert_allclose(sds, [1e-4, 1e3, 10.0], rtol=1e-9)


def test_negative_curvature_counts_by_its_size_and_infinite_curvature_not_at_all():
    root = Whitening.from_curvature(jnp.zeros(2), jnp.diag(jnp.array([4.0, -9.0]))).root
    np.testing.assert_allclose(root.values @ root.values.T, np.diag([1 / 4, 1 / 9]), rtol=1e-12)
    unknown = Whitening.from_curvature(jnp.zeros(2), jnp.full((2, 2), jnp.nan)).root
    np.testing.assert_allclose(unknown.values @ unknown.values.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_large_curvatures_become_the_identity_by_their_size(sign):
    dim = MAX_EIGEN_DIM + 1
    factor = np.random.default_rng(0).normal(size=(dim, 3))
    values = np.r_[sign, np.ones(dim - 1)]
    vectors, _ = np.linalg.qr(np.c_[factor, np.eye(dim)[:, 3:]])
    curvature = (vectors * (3 * values)) @ vectors.T
    root = np.asarray(Whitening.from_curvature(jnp.zeros(dim), jnp.asarray(curvature)).root.values)
    np.testing.assert_allclose(root @ root.T, np.eye(dim) / 3, atol=1e-9)
