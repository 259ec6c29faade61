"""Gathers at known indices become slices, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.models.frontends.static_indices import with_static_indices

GROUP = np.zeros(1, int)


def vector(table):
    return table[jnp.asarray(GROUP)]


def entry(table):
    return table[jnp.asarray(GROUP), 1] * 2


def taken(table):
    return jnp.take(table, jnp.asarray(GROUP), axis=0)


def negative(table):
    return table[jnp.asarray(GROUP) - 1]


def nested(table):
    return jax.jit(vector)(table) + jax.nn.softplus(entry(table))


@pytest.mark.parametrize("function", [vector, entry, taken, negative, nested])
def test_values_and_gradients_are_the_same_without_gathers(function):
    table = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    sliced = with_static_indices(function)
    assert "gather" not in str(jax.make_jaxpr(sliced)(table))
    np.testing.assert_array_equal(sliced(table), function(table))
    gradients = [jax.grad(lambda x, f=f: jnp.sum(f(x)))(table) for f in (sliced, function)]
    np.testing.assert_allclose(*gradients, rtol=1e-15)


def test_gathers_at_unknown_or_several_indices_stay():
    table, data = jnp.arange(6.0).reshape(3, 2), jnp.asarray([2, 0])

    def lookup(table, index):
        return table[index], table[jnp.asarray([1, 0, 2])]

    sliced = with_static_indices(lookup)
    assert str(jax.make_jaxpr(sliced)(table, data)).count("gather[") == 2
    for result, expected in zip(sliced(table, data), lookup(table, data), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_indices_out_of_bounds_keep_their_meaning():
    table = jnp.arange(3.0)
    for mode in ("fill", "clip"):

        def outside(table, mode=mode):
            return table.at[jnp.asarray([5])].get(mode=mode)

        np.testing.assert_array_equal(with_static_indices(outside)(table), outside(table))


def test_large_constants_and_random_keys_are_left_alone():
    weights = jnp.asarray(np.random.default_rng(0).normal(size=1000))

    def noisy(x):
        return x + weights.sum() + jax.random.normal(jax.random.key(0))

    np.testing.assert_array_equal(with_static_indices(noisy)(1.0), noisy(1.0))


def test_trees_are_returned_as_trees():
    result = with_static_indices(lambda x: {"a": x[GROUP], "b": (x, 1.0)})(jnp.arange(2.0))
    assert set(result) == {"a", "b"}
    assert len(result["b"]) == 2
