"""Weighted averages of vectors: frames, and the moments that large dimensions keep."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.aggregators import Precision, Vector, VectorFamily
from vcmc.aggregators.base import aggregate, prepare_all
from vcmc.aggregators.vector import MAX_COVARIANCE_DIM
from vcmc.aggregators.weights import Diagonal
from vcmc.linalg.operators import DenseOperator, DiagonalOperator, IdentityOperator
from vcmc.linalg.shrinkage import shrunk_covariances
from vcmc.space import Product, Real

SPACE = Product({"theta": Real(3)})


def test_consensus_is_in_the_framed_family(gaussian_shards):
    draws = gaussian_shards(4, 3).draws(300)
    aggregator = VectorFamily(full=True).fit(SPACE, draws, Precision())
    weights = Precision().matrices(np.linalg.inv(shrunk_covariances(draws)))
    expected = np.einsum("kij,knj->ni", weights, draws)
    np.testing.assert_allclose(aggregate(aggregator, draws), expected, rtol=1e-8)
    np.testing.assert_allclose(
        aggregator.shard_weights(), weights.diagonal(axis1=1, axis2=2), rtol=1e-8
    )


def test_the_precision_is_the_sum_of_the_shards(gaussian_shards):
    draws = gaussian_shards(4, 3).draws(300)
    expected = np.linalg.inv(shrunk_covariances(draws)).sum(axis=0)
    for full in (True, False):
        aggregator = VectorFamily(full=full).fit(SPACE, draws, Precision())
        moments = aggregator.moments(prepare_all(aggregator, draws))
        # in the frame, covariances are shrunk in other coordinates
        np.testing.assert_allclose(aggregator.precision(moments), expected, rtol=0.02, atol=0.05)


def test_without_a_frame_nothing_is_prepared():
    draws = jnp.ones((2, 5, 3))
    aggregator = Vector(Diagonal(jnp.full((2, 3), 0.5)))
    assert isinstance(aggregator.frame, IdentityOperator)
    assert prepare_all(aggregator, draws) is draws


@pytest.mark.parametrize(
    ("dim", "kind"), [(3, DenseOperator), (MAX_COVARIANCE_DIM + 1, DiagonalOperator)]
)
def test_many_coordinates_keep_variances_only(dim, kind):
    draws = jnp.asarray(np.random.default_rng(0).normal(size=(2, 40, dim)))
    moments = Vector(Diagonal(jnp.full((2, dim), 0.5))).moments(draws)
    assert isinstance(moments.covariances, kind)
    np.testing.assert_allclose(moments.covariances.diagonals(), draws.var(axis=1), rtol=1e-10)
