"""Whitened coordinates of chains, on a Gaussian and on a skewed density."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers.whitening import (
    chain_states,
    inverse_root,
    non_normality,
    normal_approximation,
    whitened_density,
)

PRECISION = np.array([[4.0, 1.0], [1.0, 0.5]])
MEAN = np.array([1.0, -2.0])


def density_of(log_density):
    """Return a density that ignores its single row."""
    model = vcmc.Model(
        {"theta": vcmc.Real(2)},
        log_prior=lambda params: 0.0 * jnp.sum(params["theta"]),
        log_likelihood=lambda params, rows: log_density(params["theta"]) + 0.0 * rows["y"],
    )
    shard = vcmc.split({"y": np.zeros(1)}, 1).load(0)
    return Subposterior(model, shard, jnp.asarray(1.0))


@pytest.fixture(scope="module")
def gaussian():
    return density_of(lambda theta: -0.5 * (theta - MEAN) @ PRECISION @ (theta - MEAN))


def test_a_gaussian_becomes_a_standard_normal(gaussian):
    root = inverse_root(gaussian, jnp.asarray(MEAN))
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(PRECISION), rtol=1e-10)
    white = np.random.default_rng(0).normal(size=(5, 2))
    states = chain_states(gaussian, white, jnp.asarray(MEAN), root)
    np.testing.assert_allclose(states.logdensity, -0.5 * np.sum(white**2, axis=1), rtol=1e-10)
    np.testing.assert_allclose(states.logdensity_grad, -white, rtol=1e-10)
    log_density = whitened_density(gaussian, jnp.asarray(MEAN), root)
    np.testing.assert_allclose(
        [log_density(jnp.asarray(point)) for point in white], states.logdensity, rtol=1e-12
    )


def test_newton_steps_find_the_mode_of_a_gaussian(gaussian):
    centre, root = normal_approximation(gaussian, jnp.asarray(MEAN + np.array([0.5, -1.0])))
    np.testing.assert_allclose(centre, MEAN, atol=1e-8)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(PRECISION), rtol=1e-10)


def test_the_curvature_is_that_of_the_mode_where_it_has_changed_on_the_way():
    """Of two log rates with two events each; the start is at four times the rate."""
    skewed = density_of(lambda theta: jnp.sum(2 * theta - jnp.exp(theta)))
    centre, root = normal_approximation(skewed, jnp.log(8.0) * jnp.ones(2))
    start_root = inverse_root(skewed, jnp.log(8.0) * jnp.ones(2))
    assert np.linalg.norm(root) > 1.5 * np.linalg.norm(start_root)
    np.testing.assert_allclose(np.linalg.norm(root, axis=1) ** 2, np.exp(-centre), rtol=0.5)


def test_steps_do_not_leave_a_density_without_a_mode():
    """They are limited to a few sds of the curvature at the start, and end at finite densities."""
    unbounded = density_of(lambda theta: jnp.sum(jnp.exp(theta)))
    centre, _ = normal_approximation(unbounded, jnp.zeros(2))
    assert np.isfinite(centre).all()
    assert (np.abs(centre) < 15).all()


def test_without_a_root_coordinates_are_shifted(gaussian):
    white = np.array([[0.5, -1.0]])
    states = chain_states(gaussian, white, jnp.asarray(MEAN), None)
    np.testing.assert_allclose(states.logdensity_grad, -white @ PRECISION, rtol=1e-10)


def test_only_a_normal_density_is_normal(gaussian):
    assert non_normality(gaussian, jnp.asarray(MEAN)) < 1e-12
    skewed = density_of(lambda theta: jnp.sum(2 * theta - jnp.exp(theta)))
    assert non_normality(skewed, jnp.log(2.0) * jnp.ones(2)) > 0.05
