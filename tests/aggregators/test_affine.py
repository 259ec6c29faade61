"""Affine maps: they begin as averages, and their closed forms are those of matrices."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.aggregators import Affine, AffineFamily, Free, Precision
from vcmc.aggregators.base import aggregate, prepare_all
from vcmc.linalg.operators import DenseOperator, DiagonalOperator
from vcmc.space import Product, Real

SPACE = Product({"theta": Real(3)})


@pytest.fixture(scope="module")
def shards(gaussian_shards):
    return gaussian_shards(4, 3)


def averages(draws, full):
    """Consensus draws, by hand."""
    if full:
        aggregator = AffineFamily(full=True).fit(SPACE, draws, Precision())
        root, transforms = aggregator.root.dense(), np.asarray(aggregator.transforms.values)
        weights = root @ transforms
    else:
        weights = np.stack([np.diag(row) for row in np.asarray(Precision().diagonal(draws).values)])
    np.testing.assert_allclose(weights.sum(axis=0), np.eye(3), atol=1e-10)
    return np.einsum("kij,knj->ni", weights, draws)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("per_shard", [True, False])
def test_initial_weights_are_averages(full, per_shard, shards):
    draws = shards.draws(200)
    aggregator = AffineFamily(full, per_shard).fit(SPACE, draws, Precision())
    np.testing.assert_allclose(aggregate(aggregator, draws), averages(draws, full), rtol=1e-9)


@pytest.mark.parametrize("full", [True, False])
def test_shift_and_scale_act_in_whitened_coordinates(full, shards):
    draws = shards.draws(200)
    aggregator = AffineFamily(full).fit(SPACE, draws, Precision())
    identity = aggregator.scale.values
    moved = eqx.tree_at(
        lambda tree: (tree.shift, tree.scale), aggregator, (Free(jnp.ones(3)), Free(2 * identity))
    )
    before, after = (np.asarray(aggregate(each, draws)) for each in (aggregator, moved))
    np.testing.assert_allclose(after.std(axis=0), 2 * before.std(axis=0), rtol=1e-9)
    step = aggregator.root.dense() @ np.ones(3)
    np.testing.assert_allclose(after.mean(axis=0) - before.mean(axis=0), step, rtol=1e-9)


@pytest.mark.parametrize(
    ("num_draws", "full", "kind"),
    [(200, None, DenseOperator), (2, None, DiagonalOperator), (200, False, DiagonalOperator)],
)
def test_few_draws_have_a_scale_for_each_coordinate(num_draws, full, kind, shards):
    draws = shards.draws(200)[:, :num_draws]
    aggregator = AffineFamily(full).fit(SPACE, draws, Precision())
    assert isinstance(aggregator, Affine)
    assert isinstance(aggregator.root, kind)


def test_the_precision_is_the_inverse_of_the_covariance(shards):
    draws = shards.draws(200)
    aggregator = AffineFamily().fit(SPACE, draws, Precision())
    moments = aggregator.moments(prepare_all(aggregator, draws))
    covariance = aggregator.covariance(moments).dense()
    np.testing.assert_allclose(aggregator.precision(moments) @ covariance, np.eye(3), atol=1e-9)
