"""Modes of local coordinates: all groups at once, from far away, and what is quadratic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.groups.local_modes import derivatives, is_quadratic, local_normals

CENTRES = jnp.asarray([[0.0, 1.0], [30.0, -4.0], [-2.0, 500.0]])


def quadratic(points):
    offset = points - CENTRES
    return -0.5 * jnp.sum(offset**2, axis=1) - 0.3 * offset[:, 0] * offset[:, 1]


def logistic(points):
    """Counts of successes and failures, which no start near zero describes."""
    successes, failures = jnp.asarray([1.0, 40.0, 900.0]), jnp.asarray([1.0, 1.0, 2.0])
    value = points[:, 0]
    likelihood = successes * jax.nn.log_sigmoid(value) + failures * jax.nn.log_sigmoid(-value)
    return likelihood - 0.5 * (value / 10) ** 2 - 0.5 * points[:, 1] ** 2


def test_derivatives_are_those_of_each_group():
    points = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    values, gradients, hessians = derivatives(logistic, points)
    np.testing.assert_allclose(values, logistic(points))
    for group in range(3):

        def one(point, group=group):
            return logistic(points.at[group].set(point))[group]

        np.testing.assert_allclose(gradients[group], jax.grad(one)(points[group]), rtol=1e-9)
        np.testing.assert_allclose(hessians[group], jax.hessian(one)(points[group]), atol=1e-9)


@pytest.mark.parametrize("start", [0.0, 20.0, -50.0])
def test_modes_are_found_from_far_away(start):
    normals = local_normals(logistic, jnp.full((3, 2), start))
    gradients = derivatives(logistic, normals.centres).gradients
    white = np.einsum("gji,gj->gi", normals.roots, gradients)
    assert np.abs(white).max() < 1e-3  # sds from the mode


def test_the_normal_approximation_of_a_normal_density_is_exact():
    normals = local_normals(quadratic, jnp.zeros((3, 2)))
    np.testing.assert_allclose(normals.centres, CENTRES, rtol=1e-9)
    covariance = normals.roots @ jnp.swapaxes(normals.roots, 1, 2)
    expected = np.linalg.inv(np.array([[1, 0.3], [0.3, 1]]))
    np.testing.assert_allclose(covariance, np.stack([expected] * 3), rtol=1e-9)
    np.testing.assert_allclose(normals.log_dets, 0.5 * np.linalg.slogdet(expected)[1], rtol=1e-9)


def test_a_density_without_a_mode_ends():
    normals = local_normals(lambda points: points[:, 0], jnp.zeros((2, 1)))
    assert np.isfinite(normals.centres).all()


def test_quadratic_densities_are_recognised():
    assert is_quadratic(quadratic, 3, 2, seed=0)
    assert not is_quadratic(logistic, 3, 2, seed=0)
