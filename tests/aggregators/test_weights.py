"""Projections against an independent solver; free coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from vcmc.aggregators import Diagonal, Matrices, Precision
from vcmc.aggregators.weights import MIN_WEIGHT_SHARE


def random_matrices(seed, num_shards, dim, scale):
    values = scale * jax.random.normal(jax.random.key(seed), (num_shards, dim, dim))
    return (values + jnp.swapaxes(values, 1, 2)) / 2


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 2, 7]), st.floats(0.01, 10))
def test_projection_of_weights_is_that_of_a_quadratic_program(seed, num_shards, scale):
    values = scale * np.random.default_rng(seed).normal(size=num_shards)
    found = np.asarray(Diagonal(jnp.asarray(values)[:, None]).project().values[:, 0])
    floor = MIN_WEIGHT_SHARE / num_shards
    solved = minimize(
        lambda w: np.sum((w - values) ** 2),
        np.full(num_shards, 1 / num_shards),
        jac=lambda w: 2 * (w - values),
        bounds=[(floor, None)] * num_shards,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    ).x
    np.testing.assert_allclose(found, solved, atol=1e-8 * max(1, scale))


def conditions(values, projected, floor):
    """Return the violation of the KKT conditions, which only the nearest matrices meet."""
    dim = values.shape[1]
    rest = projected - floor * np.eye(dim)
    # W_k - Y_k - M = U_k with U_k ⪰ 0 and U_k (W_k - floor) = 0, for one symmetric M
    gaps = projected - values
    ranges = [np.linalg.eigh(part) for part in rest]
    # M is known on the range of every part; the widest part knows most of it
    multiplier = fit_multiplier(gaps, ranges)
    slack = gaps - multiplier
    return max(
        np.abs(projected.sum(axis=0) - np.eye(dim)).max(),
        max(0, -np.linalg.eigvalsh(rest).min()),
        max(0, -np.linalg.eigvalsh(slack).min()),
        np.abs(np.einsum("kij,kjl->kil", slack, rest)).max(),
    )


def fit_multiplier(gaps, ranges):
    """Return the symmetric M for which W_k - Y_k - M vanishes on the range of every part."""
    dim = gaps.shape[1]
    rows, columns = np.tril_indices(dim)
    basis = np.zeros((len(rows), dim, dim))
    basis[np.arange(len(rows)), rows, columns] = basis[np.arange(len(rows)), columns, rows] = 1
    left, right = [], []
    for gap, (roots, vectors) in zip(gaps, ranges, strict=True):
        inside = vectors[:, roots > 1e-9]
        left.append((basis @ inside).reshape(len(rows), -1).T)
        right.append((gap @ inside).ravel())
    solved = np.linalg.lstsq(np.concatenate(left), np.concatenate(right), rcond=None)[0]
    return np.tensordot(solved, basis, axes=1)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.01, 0.3, 3.0, 1e4])
@pytest.mark.parametrize(("num_shards", "dim"), [(1, 3), (5, 3), (20, 6)])
def test_projection_of_matrices_meets_the_conditions_of_the_nearest(num_shards, dim, scale):
    values = random_matrices(num_shards, num_shards, dim, scale)
    projected = np.asarray(Matrices(values).project().values)
    np.testing.assert_allclose(projected.sum(axis=0), np.eye(dim), atol=1e-10)
    assert conditions(np.asarray(values), projected, MIN_WEIGHT_SHARE / num_shards) < 1e-8 * max(
        1, scale
    )


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_projection_of_matrices_is_that_of_a_solver(scale):
    """Two by two: SciPy over factors W_k = floor + L_k L_kᵀ, whose sum must be the identity."""
    num_shards, dim = 3, 2
    values = np.asarray(random_matrices(7, num_shards, dim, scale))
    floor = MIN_WEIGHT_SHARE / num_shards * np.eye(dim)

    def build(free):
        factors = free.reshape(num_shards, dim, dim)
        return floor + factors @ factors.transpose(0, 2, 1)

    solved = minimize(
        lambda free: np.sum((build(free) - values) ** 2),
        np.tile(np.eye(dim) / np.sqrt(num_shards), (num_shards, 1, 1)).ravel(),
        constraints={
            "type": "eq",
            "fun": lambda free: (build(free).sum(axis=0) - np.eye(dim))[np.tril_indices(dim)],
        },
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 2000},
    )
    projected = np.asarray(Matrices(jnp.asarray(values)).project().values)
    # the solver's own accuracy bounds this; the conditions of the nearest, above, are met to 1e-8
    np.testing.assert_allclose(projected, build(solved.x), atol=1e-5)
    assert np.sum((projected - values) ** 2) <= solved.fun + 1e-8


@pytest.mark.parametrize("kind", [Diagonal, Matrices])
def test_projecting_weights_leaves_them_alone(kind):
    values = jnp.array([[0.2, 0.5], [0.8, 0.5]])
    weights = kind(values if kind is Diagonal else jax.vmap(jnp.diag)(values))
    np.testing.assert_allclose(weights.project().values, weights.values, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_free_coordinates_always_stand_for_weights(seed):
    free = 2 * jax.random.normal(jax.random.key(seed), (5, 4))
    diagonal = Diagonal(free).from_free(free).values
    assert (diagonal > 0).all()
    np.testing.assert_allclose(diagonal.sum(axis=0), 1, rtol=1e-12)
    free = 2 * jax.random.normal(jax.random.key(seed), (5, 4, 4))
    matrices = Matrices(free).from_free(free).values
    assert (np.linalg.eigvalsh(matrices) > 0).all()
    np.testing.assert_allclose(matrices.sum(axis=0), np.eye(4), atol=1e-10)


def test_free_coordinates_lead_back():
    draws = jax.random.normal(jax.random.key(0), (4, 50, 3)) * jnp.linspace(1, 3, 4)[:, None, None]
    for weights in (Precision().diagonal(draws), Matrices(random_matrices(0, 4, 3, 0.1)).project()):
        np.testing.assert_allclose(
            weights.from_free(weights.free()).values, weights.values, atol=1e-10
        )


def test_log_determinants():
    matrices = Matrices(random_matrices(0, 4, 3, 0.05)).project()
    np.testing.assert_allclose(
        matrices.log_dets(), np.linalg.slogdet(matrices.values)[1], rtol=1e-10
    )
    diagonal = Diagonal(matrices.diagonals())
    np.testing.assert_allclose(
        diagonal.log_dets(), np.log(matrices.diagonals()).sum(axis=1), rtol=1e-12
    )
