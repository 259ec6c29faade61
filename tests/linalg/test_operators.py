"""Operators against the matrices that they stand for, in NumPy and in JAX."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.linalg.operators import DenseOperator, DiagonalOperator, IdentityOperator

GENERATOR = np.random.default_rng(0)
DENSE = GENERATOR.normal(size=(3, 3)) + 2 * np.eye(3)
DIAGONAL = np.array([0.5, -2.0, 3.0])
ROWS = GENERATOR.normal(size=(4, 3))
SPD = DENSE @ DENSE.T


@pytest.fixture(params=[np, jnp], ids=["numpy", "jax"])
def xp(request):
    return request.param


@pytest.fixture(params=["dense", "diagonal"])
def pair(request, xp):
    """An operator, and its matrix."""
    if request.param == "dense":
        return DenseOperator(xp.asarray(DENSE)), DENSE
    return DiagonalOperator(xp.asarray(DIAGONAL)), np.diag(DIAGONAL)


@pytest.fixture(params=["dense", "diagonal"])
def batch(request, xp):
    """A batch of operators, their covariances as operators, and all as matrices."""
    if request.param == "dense":
        values = np.random.default_rng(1).normal(size=(4, 3, 3))
        spreads = values @ values.transpose(0, 2, 1)
        kind, matrices, covariances = DenseOperator, values, spreads
    else:
        values, spreads = np.random.default_rng(1).uniform(1, 2, size=(2, 4, 3))
        kind = DiagonalOperator
        matrices, covariances = (np.stack([np.diag(row) for row in v]) for v in (values, spreads))
    return kind(xp.asarray(values)), kind(xp.asarray(spreads)), matrices, covariances


def test_products_are_those_of_the_matrix(pair, xp):
    operator, matrix = pair
    vector, rows = xp.asarray(ROWS[0]), xp.asarray(ROWS)
    np.testing.assert_allclose(operator @ vector, matrix @ ROWS[0], rtol=1e-12)
    np.testing.assert_allclose(rows @ operator, ROWS @ matrix, rtol=1e-12)
    np.testing.assert_allclose(rows @ operator.T, ROWS @ matrix.T, rtol=1e-12)


def test_solve_undoes_a_product(pair, xp):
    operator, _ = pair
    rows = xp.asarray(ROWS)
    np.testing.assert_allclose(operator.solve(rows @ operator.T), ROWS, rtol=1e-10)
    np.testing.assert_allclose(operator.solve(operator @ rows[0]), ROWS[0], rtol=1e-10)
    np.testing.assert_allclose(operator.inverse() @ (operator @ rows[0]), ROWS[0], rtol=1e-10)


def test_log_determinants(pair):
    operator, matrix = pair
    expected = np.linalg.slogdet(matrix)[1]
    assert float(operator.log_det()) == pytest.approx(expected, rel=1e-12)
    square = operator.congruence(operator.from_dense(np.eye(3)))  # A Aᵀ
    assert float(square.log_det_spd()) == pytest.approx(2 * expected, rel=1e-10)


def test_compositions(pair):
    operator, matrix = pair
    np.testing.assert_allclose(operator.compose(operator).dense(), matrix @ matrix, rtol=1e-12)
    inner = operator.from_dense(SPD)
    expected = matrix @ inner.dense() @ matrix.T
    np.testing.assert_allclose(operator.congruence(inner).dense(), expected, rtol=1e-12)
    expected = matrix @ inner.dense() @ np.linalg.inv(matrix)
    np.testing.assert_allclose(operator.similarity(inner).dense(), expected, rtol=1e-9, atol=1e-12)
    trace = np.trace(matrix @ SPD)
    assert float(operator.trace_product(SPD.T)) == pytest.approx(
        trace if isinstance(operator, DiagonalOperator) else np.sum(matrix * SPD), rel=1e-12
    )
    halfway = operator.interpolate(operator.identity(3), 0.5)
    np.testing.assert_allclose(halfway.dense(), (matrix + np.eye(3)) / 2, rtol=1e-12)


def test_batches_are_sums_over_shards(batch, xp):
    operators, spreads, matrices, covariances = batch
    vectors = xp.asarray(ROWS)
    single = np.einsum("kij,kj->ki", matrices, ROWS)
    np.testing.assert_allclose(operators @ vectors, single, rtol=1e-12)
    np.testing.assert_allclose(operators.contract(vectors), single.sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(operators.log_det(), np.linalg.slogdet(matrices)[1], rtol=1e-10)
    expected = np.sum(matrices @ covariances @ matrices.transpose(0, 2, 1), axis=0)
    total = operators.sum_congruences(spreads)
    np.testing.assert_allclose(total.dense(), expected, rtol=1e-10)
    trace = float(operators.sum_congruences_trace(spreads, xp.asarray(SPD)))
    assert trace == pytest.approx(np.trace(SPD @ expected), rel=1e-10)
    diagonals = np.einsum("ij,kji->ki", operators.from_dense(SPD).dense(), matrices)
    products = operators.from_dense(SPD).product_diagonals(operators.numpy())
    np.testing.assert_allclose(products, diagonals, rtol=1e-10)


def test_diagonal_weights_of_dense_covariances():
    weights = np.random.default_rng(2).uniform(size=(4, 3))
    covariances = np.stack([(k + 1) * SPD for k in range(4)])
    expected = np.einsum("ki,kij,kj->ij", weights, covariances, weights)
    operators, spreads = DiagonalOperator(weights), DenseOperator(covariances)
    np.testing.assert_allclose(operators.sum_congruences(spreads).dense(), expected, rtol=1e-12)
    trace = operators.sum_congruences_trace(spreads, SPD)
    assert float(trace) == pytest.approx(np.trace(SPD @ expected), rel=1e-12)


@pytest.mark.parametrize("kind", [DenseOperator, DiagonalOperator])
def test_covariances_of_draws(kind):
    draws = np.random.default_rng(3).normal(size=(2, 50, 3))
    expected = np.stack([np.cov(shard.T, bias=True) for shard in draws])
    found = kind.covariances(jnp.asarray(draws))
    np.testing.assert_allclose(found.diagonals(), expected.diagonal(axis1=1, axis2=2), rtol=1e-10)


def test_the_identity_copies_nothing():
    identity, inner = IdentityOperator(), DenseOperator(SPD)
    assert identity @ ROWS is ROWS
    assert ROWS @ identity.T is ROWS
    assert identity.solve(ROWS) is ROWS
    assert identity.inverse().congruence(inner) is inner
    assert identity.similarity(inner) is inner
