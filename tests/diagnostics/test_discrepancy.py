"""The kernel Stein discrepancy against automatic differentiation, and as a test."""

import jax
import jax.numpy as jnp
import numpy as np

from vcmc.diagnostics.discrepancy import kernel_stein_discrepancy


def test_it_is_what_differentiating_the_kernel_gives():
    x = np.random.default_rng(0).normal(size=(5, 3))
    scores = np.sin(x) - x

    def kernel(x, y):
        return (1 + jnp.sum((x - y) ** 2) / 3) ** -0.5

    def stein(x, y, s, t):
        along = s @ jax.grad(kernel, 1)(x, y) + t @ jax.grad(kernel, 0)(x, y)
        return kernel(x, y) * s @ t + along + jnp.trace(jax.jacfwd(jax.grad(kernel, 0), 1)(x, y))

    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    square = np.mean([stein(x[i], x[j], scores[i], scores[j]) for i, j in pairs])
    found, _ = kernel_stein_discrepancy(x, scores, np.random.default_rng(0))
    np.testing.assert_allclose(found, np.sqrt(max(square, 0)), rtol=1e-10)


def test_right_draws_are_rarely_rejected_and_wrong_ones_are():
    generator = np.random.default_rng(1)
    values = [
        kernel_stein_discrepancy(draws, -draws, generator)[1]
        for draws in generator.normal(size=(100, 80, 2))
    ]
    assert np.mean(np.array(values) < 0.05) < 0.12  # expected .05, sd of a hundred .022
    wide = 1.5 * generator.normal(size=(300, 2))
    assert kernel_stein_discrepancy(wide, -wide, generator)[1] < 0.01
