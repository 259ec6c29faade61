"""The Gaussians of modes, on densities whose shape is known."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_shape import mode_at, step_off_pass
from vcmc.target import Target

SDS = np.ones(2)  # of draws
UNITS = np.array([1e-4, 1e3])  # in which two coordinates have about unit width


def target_of(log_density, dim=2):
    model = vcmc.Model(
        {"theta": vcmc.Real(dim)},
        lambda params: 0.0 * params["theta"].sum(),
        lambda params, rows: rows["one"] * log_density(params["theta"]),
    )
    return Target(model, vcmc.split({"one": np.ones(1)}, 1), vcmc.executors.Local())


def test_the_mode_of_a_gaussian_has_its_precision_and_mass(normal_mixture):
    mixture = normal_mixture([1.0], [[1.0, -2.0]], [[[2.0, 0.6], [0.6, 1.0]]])
    mode = mode_at(mixture.target(3), mixture.means[0], SDS)
    np.testing.assert_allclose(mode.curvature, np.linalg.inv(mixture.covariances[0]), rtol=1e-4)
    # the density is normalized, and a mass comes without the factor of 2π
    assert mode.log_mass == pytest.approx(-np.log(2 * np.pi), abs=1e-4)
    assert mode.distance(mixture.means[0] + [np.sqrt(2.0), 0.3 * np.sqrt(2.0)]) == pytest.approx(1)


def test_a_flat_top_gets_the_width_at_which_it_falls():
    """The fall of x⁴ is 2 nats at 2^¼, which is two sds of the Gaussian."""
    mode = mode_at(target_of(lambda theta: -(theta[0] ** 4) - 2 * theta[1] ** 2), np.zeros(2), SDS)
    sds = np.sqrt(np.diag(np.linalg.inv(mode.curvature)))
    np.testing.assert_allclose(sds, [2**0.25 / 2, 0.5], rtol=0.15)


def test_a_point_of_a_ring_is_no_mode():
    ring = target_of(lambda theta: -50 * (jnp.linalg.norm(theta) - 2) ** 2)
    assert mode_at(ring, np.array([2.0, 0.0]), SDS) is None


def test_a_slope_is_no_mode():
    hill = target_of(lambda theta: -0.5 * jnp.sum(theta**2))
    assert mode_at(hill, np.array([3.0, 0.0]), SDS) is None


def test_the_step_off_a_pass_leads_to_both_modes(normal_mixture):
    covariances = [0.2 * np.eye(2)] * 2
    even = normal_mixture([0.5, 0.5], [[-2.0, 1.0], [2.0, 1.0]], covariances).target(1)
    step = step_off_pass(even, np.array([0.0, 1.0]), SDS)
    assert abs(step[0]) > 10 * abs(step[1])
    assert mode_at(even, np.array([0.0, 1.0]), SDS) is None
    assert step_off_pass(even, np.array([2.0, 1.0]), SDS) is None


@pytest.mark.parametrize("width", [0.1, 1.0, 30.0])
def test_the_precision_and_the_mass_are_right_in_any_units(width, normal_mixture):
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]]) * np.outer(UNITS, UNITS)
    mixture = normal_mixture([1.0], [UNITS], [covariance])
    mode = mode_at(mixture.target(3), UNITS, width * UNITS)
    np.testing.assert_allclose(np.linalg.inv(mode.curvature), covariance, rtol=1e-3)
    assert mode.log_mass == pytest.approx(-np.log(2 * np.pi), abs=1e-3)


@pytest.mark.parametrize("flat", [0, 1])
@pytest.mark.parametrize("width", [0.1, 30.0])
def test_a_top_that_is_flat_along_one_of_two_scales_gets_its_width(flat, width):
    def log_density(theta):
        white = theta / UNITS
        return -(white[flat] ** 4) - 2 * white[1 - flat] ** 2

    mode = mode_at(target_of(log_density), np.zeros(2), width * UNITS)
    sds = np.sqrt(np.diag(np.linalg.inv(mode.curvature))) / UNITS
    np.testing.assert_allclose(sds[[flat, 1 - flat]], [2**0.25 / 2, 0.5], rtol=0.15)


def test_a_point_of_a_ring_is_no_mode_in_any_units():
    ring = target_of(lambda theta: -50 * (jnp.linalg.norm(theta / UNITS) - 2) ** 2)
    for point in ([2.0, 0.0], [0.0, 2.0], [2**0.5, 2**0.5]):
        assert mode_at(ring, UNITS * point, UNITS) is None


@pytest.mark.parametrize("apart", [0, 1])
def test_the_step_off_a_pass_is_along_the_coordinate_in_which_modes_differ(apart, normal_mixture):
    means = np.outer([-2.0, 2.0], UNITS * np.eye(2)[apart])
    even = normal_mixture([0.5, 0.5], means, [np.diag(0.2 * UNITS**2)] * 2).target(1)
    step = step_off_pass(even, np.zeros(2), UNITS) / UNITS
    assert abs(step[apart]) > 10 * abs(step[1 - apart])
    assert step_off_pass(even, means[1], UNITS) is None
