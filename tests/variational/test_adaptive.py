"""Adaptive steps stay among the weights, and go uphill."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vcmc.aggregators import Diagonal
from vcmc.variational import Adaptive


def test_a_step_goes_uphill_and_weights_add_up_to_one():
    weights = [Diagonal(jnp.full((4, 2), 0.25))]
    gradient = [jnp.asarray([[3.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])]
    optimizer = Adaptive(method=optax.sgd, learning_rate=0.1)
    (moved,), _ = optimizer.update(gradient, weights, optimizer.init(weights), jnp.asarray(1.0))
    np.testing.assert_allclose(moved.values.sum(axis=0), 1, rtol=1e-12)
    assert moved.values[0, 0] > 0.25
    assert moved.values[2, 1] > 0.25
    # the gradient with respect to logits is w (g - sum w g)
    expected = 0.25 * (np.asarray(gradient[0]) - 0.25 * np.asarray(gradient[0]).sum(axis=0))
    logits = np.log(0.25) + 0.1 * expected
    np.testing.assert_allclose(
        moved.values, np.exp(logits) / np.exp(logits).sum(axis=0), rtol=1e-10
    )


def test_a_rate_of_zero_stays():
    weights = [Diagonal(jnp.asarray([[0.7], [0.3]]))]
    optimizer = Adaptive()
    gradient = [jnp.ones((2, 1))]
    (moved,), _ = optimizer.update(gradient, weights, optimizer.init(weights), jnp.asarray(0.0))
    np.testing.assert_allclose(moved.values, weights[0].values, rtol=1e-12)


def test_a_transformation_in_place_of_a_method_is_refused():
    with pytest.raises(TypeError, match=r"optax\.adam"):
        Adaptive(method=optax.adam(0.1))
