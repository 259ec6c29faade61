"""Directions without curvature, in coordinates of any units."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.flat_directions import (
    describe_direction,
    flat_prior,
    null_vectors,
)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_null_vectors_do_not_depend_on_units(scale):
    generator = np.random.default_rng(0)
    units = scale ** np.arange(-2.0, 3.0)
    x = generator.normal(size=(40, 5))
    x[:, 3] = x[:, 0] - 2 * x[:, 1]
    x *= units
    (found,) = null_vectors((x.T @ x)[None], np.eye(5))
    expected = np.array([1.0, -2.0, 0.0, -1.0, 0.0]) / units
    cosine = found @ (expected * units**2) / np.linalg.norm(found * units) / np.sqrt(6)
    assert abs(abs(cosine) - 1) < 1e-6


def test_a_direction_is_null_only_if_it_is_for_all_hessians():
    hessians = np.array([np.diag([1.0, 0.0, 0.0]), np.diag([0.0, 1e-8, 0.0])])
    found = null_vectors(hessians, np.eye(3))
    np.testing.assert_allclose(np.abs(found), [[0, 0, 1]], atol=1e-12)
    assert len(null_vectors(hessians[:0], np.eye(3))) == 0
    np.testing.assert_array_equal(null_vectors(0 * hessians, np.eye(3)), np.eye(3))


def test_a_laplace_prior_is_not_linear():
    def log_prior(params):
        return -jnp.sum(jnp.abs(params["beta"])) + 2 * params["alpha"]

    space = {"beta": vcmc.Real(3), "alpha": vcmc.Real()}
    model = vcmc.Model(space, log_prior, lambda params, rows: rows["y"])
    flat = flat_prior(model, np.random.default_rng(0).normal(size=(2, 4)))
    np.testing.assert_array_equal(flat.directions, [[0, 0, 0, 1]])


def test_models_of_many_coordinates_are_not_checked():
    model = vcmc.Model({"beta": vcmc.Real(601)}, lambda p: p["beta"][0], lambda p, rows: rows["y"])
    flat = flat_prior(model, np.zeros((1, 601)))
    assert flat.directions.shape == (0, 601)
    assert flat.coordinates.all()  # linear in the first


def test_long_directions_are_cut():
    names = np.array(["a", "b", "c", "d"])
    assert describe_direction(names, np.array([1.0, 0.001, -1.0, 0.3]), 2) == "1 a - 1 c …"
    assert describe_direction(names, np.array([0.0, -3.0, 0.0, 0.0]), 2) == "1 b"
