"""Errors of draws that are too few for their covariance, in a frame of the target."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.coordinates import coordinates_of, linearize
from vcmc.diagnostics.selfcheck import self_check
from vcmc.linalg.frames import MAX_FRAME_DIM
from vcmc.target import Target

DIM, NUM_DRAWS = 40, 50  # fewer than 1.5 draws per coordinate


@pytest.fixture(scope="module")
def gaussian():
    """A Gaussian with strong correlations: its covariance and its target."""
    generator = np.random.default_rng(0)
    root = np.tril(generator.normal(size=(DIM, DIM))) + 3 * np.eye(DIM)
    precision = jnp.asarray(np.linalg.inv(root @ root.T))
    model = vcmc.Model(
        {"theta": vcmc.Real(DIM)},
        lambda params: 0.0 * jnp.sum(params["theta"]),
        lambda params, rows: (
            -0.5 * rows["one"] / 4 * (params["theta"] @ precision @ params["theta"])
        ),
    )
    return root @ root.T, Target(model, vcmc.split({"one": np.ones(4)}, 2), vcmc.executors.Local())


def identity(points):
    return np.asarray(points)


def correlated(covariance):
    return np.random.default_rng(1).multivariate_normal(np.zeros(DIM), covariance, size=NUM_DRAWS)


def uncorrelated(covariance):
    """Draws with the wrong correlations, and sds that are wrong by up to a factor of two."""
    sds = np.sqrt(np.diag(covariance)) * np.linspace(0.5, 2, DIM)
    return 0.3 * sds + sds * np.random.default_rng(1).normal(size=(NUM_DRAWS, DIM))


@pytest.mark.parametrize("make_draws", [correlated, uncorrelated])
def test_errors_of_few_draws_of_a_gaussian_are_those_of_the_draws(make_draws, gaussian):
    covariance, target = gaussian
    draws, sds = make_draws(covariance), np.sqrt(np.diag(covariance))
    check = self_check(draws, target, identity, seed=0)
    np.testing.assert_allclose(check.errors.mean, draws.mean(axis=0) / sds, atol=1e-5)
    np.testing.assert_allclose(check.errors.sd, draws.std(axis=0) / sds - 1, atol=1e-4)
    assert check.not_linear < 1e-6


def test_errors_of_nonlinear_quantities_follow_their_gradients(gaussian):
    covariance, target = gaussian
    sds = np.sqrt(np.diag(covariance))

    def exponentials(points):
        return np.exp(0.01 * np.asarray(points) / sds)  # close to linear

    draws = uncorrelated(covariance)
    check = self_check(draws, target, exponentials, seed=0)
    exact = 0.01  # the sd of each, to first order
    expected = exponentials(draws).std(axis=0) / exact - 1
    np.testing.assert_allclose(check.errors.sd, expected, atol=0.01)  # second-order terms


def test_a_frame_whitens_variances_and_knows_its_curvature(gaussian):
    covariance, target = gaussian
    draws = uncorrelated(covariance)
    whitening, curvature = coordinates_of(draws, target)
    white = whitening.whiten(draws)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(white.std(axis=0), 1, rtol=1e-12)
    matrix = whitening.root.values
    np.testing.assert_allclose(
        matrix.T @ np.linalg.inv(covariance) @ matrix, np.diag(curvature), atol=1e-8
    )


def test_many_draws_are_whitened_by_their_covariance(gaussian):
    covariance, target = gaussian
    draws = np.random.default_rng(1).multivariate_normal(np.zeros(DIM), covariance, size=200)
    whitening, curvature = coordinates_of(draws, target)
    assert whitening.is_dense
    assert curvature is None


def test_too_many_coordinates_for_a_frame_have_variances(gaussian):
    _, target = gaussian
    draws = np.random.default_rng(0).normal(size=(3, MAX_FRAME_DIM + 1))
    whitening, curvature = coordinates_of(draws, target)
    assert curvature is None
    np.testing.assert_allclose(whitening.whiten(draws).std(axis=0), 1, rtol=1e-12)


def test_quantities_that_are_not_linear_are_not_stretched(gaussian):
    covariance, target = gaussian
    draws = correlated(covariance)
    whitening, _ = coordinates_of(draws, target)
    white = whitening.whiten(draws)

    def quantities(points):
        centred = np.asarray(points) - np.asarray(whitening.centre)
        return np.stack([centred[:, 0], centred[:, 0] ** 2], axis=1)

    along, _, stretches = linearize(quantities, whitening, white, np.ones(DIM), white[:20])
    assert stretches[1] == 1
    assert stretches[0] == pytest.approx(1 / along[:, 0].std())
