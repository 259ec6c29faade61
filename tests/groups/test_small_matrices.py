"""Factorizations of many small matrices agree with NumPy's."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.groups.small_matrices import apply, inverse_transpose, positive_cholesky


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_factors_and_inverses_are_numpys(dim):
    generator = np.random.default_rng(0)
    roots = generator.normal(size=(7, dim, dim))
    matrices = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(dim)
    factors = positive_cholesky(jnp.asarray(matrices))
    np.testing.assert_allclose(factors, np.linalg.cholesky(matrices), rtol=1e-9, atol=1e-12)
    expected = np.linalg.inv(np.linalg.cholesky(matrices)).transpose(0, 2, 1)
    np.testing.assert_allclose(inverse_transpose(factors), expected, rtol=1e-8, atol=1e-10)
    vectors = generator.normal(size=(7, dim))
    products = np.einsum("gij,gj->gi", matrices, vectors)
    np.testing.assert_allclose(apply(jnp.asarray(matrices), jnp.asarray(vectors)), products)


def test_matrices_that_are_not_positive_have_factors():
    matrices = jnp.asarray([[[-2.0, 0.3], [0.3, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    factors = np.asarray(positive_cholesky(matrices))
    assert np.isfinite(factors).all()
    assert (np.diagonal(factors, axis1=1, axis2=2) > 0).all()
