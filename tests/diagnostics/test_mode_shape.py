"""The Gaussians of modes, on densities whose shape is known."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_shape import mode_at, step_off_pass
from vcmc.target import Target


def target_of(log_density, dim=2):
    model = vcmc.Model(
        {"theta": vcmc.Real(dim)},
        lambda params: 0.0 * params["theta"].sum(),
        lambda params, rows: rows["one"] * log_density(params["theta"]),
    )
    return Target(model, vcmc.split({"one": np.ones(1)}, 1), vcmc.executors.Local())


def test_the_mode_of_a_gaussian_has_its_precision_and_mass(normal_mixture):
    mixture = normal_mixture([1.0], [[1.0, -2.0]], [[[2.0, 0.6], [0.6, 1.0]]])
    mode = mode_at(mixture.target(3), mixture.means[0])
    np.testing.assert_allclose(mode.curvature, np.linalg.inv(mixture.covariances[0]), rtol=1e-4)
    # the density is normalized, and a mass comes without the factor of 2π
    assert mode.log_mass == pytest.approx(-np.log(2 * np.pi), abs=1e-4)
    assert mode.distance(mixture.means[0] + [np.sqrt(2.0), 0.3 * np.sqrt(2.0)]) == pytest.approx(1)


def test_a_flat_top_gets_the_width_at_which_it_falls():
    """The fall of x⁴ is 2 nats at 2^¼, which is two sds of the Gaussian."""
    mode = mode_at(target_of(lambda theta: -(theta[0] ** 4) - 2 * theta[1] ** 2), np.zeros(2))
    sds = np.sqrt(np.diag(np.linalg.inv(mode.curvature)))
    np.testing.assert_allclose(sds, [2**0.25 / 2, 0.5], rtol=0.15)


def test_a_point_of_a_ring_is_no_mode():
    ring = target_of(lambda theta: -50 * (jnp.linalg.norm(theta) - 2) ** 2)
    assert mode_at(ring, np.array([2.0, 0.0])) is None


def test_a_slope_is_no_mode():
    assert mode_at(target_of(lambda theta: -0.5 * jnp.sum(theta**2)), np.array([3.0, 0.0])) is None


def test_the_step_off_a_pass_leads_to_both_modes(normal_mixture):
    covariances = [0.2 * np.eye(2)] * 2
    even = normal_mixture([0.5, 0.5], [[-2.0, 1.0], [2.0, 1.0]], covariances).target(1)
    step = step_off_pass(even, np.array([0.0, 1.0]))
    assert abs(step[0]) > 10 * abs(step[1])
    assert mode_at(even, np.array([0.0, 1.0])) is None
    assert step_off_pass(even, np.array([2.0, 1.0])) is None
