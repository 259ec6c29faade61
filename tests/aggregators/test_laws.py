"""Laws of aggregators: F(θ, …, θ) = θ; K = 1 is the identity; shards may be relabelled."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc import aggregators
from vcmc.aggregators import Vector

DIM = 3


def covariances(num_shards):
    roots = jax.random.normal(jax.random.key(7), (num_shards, DIM, DIM))
    return roots @ roots.transpose(0, 2, 1) + 0.1 * jnp.eye(DIM)


AGGREGATORS = {
    "uniform": lambda num_shards: Vector.uniform(num_shards, DIM),
    "variance": lambda num_shards: Vector.from_variance(
        jax.random.uniform(jax.random.key(0), (num_shards, DIM), minval=0.1)
    ),
    "covariance": lambda num_shards: Vector.from_covariance(covariances(num_shards)),
}


def test_every_aggregator_is_here():
    classes = {
        item
        for _, item in inspect.getmembers(aggregators, inspect.isclass)
        if issubclass(item, aggregators.AbstractAggregator) and not inspect.isabstract(item)
    }
    assert classes == {type(make(2)) for make in AGGREGATORS.values()}


@pytest.mark.parametrize("make", AGGREGATORS.values(), ids=AGGREGATORS.keys())
@pytest.mark.parametrize("num_shards", [1, 2, 7])
def test_shards_that_agree_are_left_alone(make, num_shards):
    point = jnp.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(make(num_shards)(jnp.tile(point, (num_shards, 1))), point, rtol=1e-9)


@pytest.mark.parametrize("make", AGGREGATORS.values(), ids=AGGREGATORS.keys())
def test_shards_may_be_relabelled_with_their_weights(make):
    aggregator = make(5)
    points = jax.random.normal(jax.random.key(1), (5, DIM))
    order = jnp.array([3, 1, 4, 0, 2])
    relabelled = jax.tree.map(lambda weights: weights[order], aggregator)
    np.testing.assert_allclose(relabelled(points[order]), aggregator(points), rtol=1e-12)


def test_covariance_weights_make_the_product_of_gaussians():
    sigmas = covariances(4)
    weights = np.asarray(Vector.from_covariance(sigmas).weights)
    combined = sum(w @ s @ w.T for w, s in zip(weights, np.asarray(sigmas), strict=True))
    np.testing.assert_allclose(combined, np.linalg.inv(np.linalg.inv(sigmas).sum(axis=0)), rtol=1e-8)
