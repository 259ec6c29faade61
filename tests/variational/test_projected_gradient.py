"""Projected steps stay among the weights, and have the length of the schedule."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vcmc.aggregators import Diagonal
from vcmc.variational import ProjectedGradient


def move(optimizer, weights, gradient):
    state = optimizer.init(weights)
    (moved,), _ = optimizer.update(gradient, weights, state, jnp.asarray(1.0))
    return np.asarray(moved.values)


def test_a_short_step_follows_the_gradient_within_the_simplex():
    weights = [Diagonal(jnp.full((4, 1), 0.25))]
    gradient = [jnp.asarray([[4.0], [0.0], [0.0], [0.0]])]
    moved = move(ProjectedGradient(step=optax.constant_schedule(0.01)), weights, gradient)
    np.testing.assert_allclose(moved[:, 0], [0.28, 0.24, 0.24, 0.24], rtol=1e-10)


def test_a_long_step_ends_on_the_boundary():
    weights = [Diagonal(jnp.full((3, 1), 1 / 3))]
    gradient = [jnp.asarray([[9.0], [0.0], [0.0]])]
    moved = move(ProjectedGradient(step=optax.constant_schedule(1.0)), weights, gradient)
    np.testing.assert_allclose(moved.sum(axis=0), 1, rtol=1e-12)
    assert moved[0, 0] > 0.99
    assert (moved > 0).all()  # the logarithm of a weight must be finite


def test_a_number_in_place_of_a_schedule_is_refused():
    with pytest.raises(TypeError, match=r"optax\.constant_schedule"):
        ProjectedGradient(step=0.1)
