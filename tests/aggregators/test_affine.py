"""Affine maps: they begin as averages, and their closed forms are those of matrices."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.aggregators import Affine, AffineFamily, Free, Precision, Uniform
from vcmc.aggregators.affine import _framed_averages
from vcmc.aggregators.base import AbstractFamily, aggregate, prepare_all
from vcmc.linalg.frames import FrameOperator, frame_of_curvature
from vcmc.linalg.operators import DenseOperator, DiagonalOperator
from vcmc.space import Product, Real
from vcmc.testing import check_aggregator

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


def test_fewer_draws_than_coordinates_are_averaged_with_common_eigenvectors(gaussian_shards):
    num_shards, dim, num_draws = 20, 12, 10
    draws = gaussian_shards(num_shards, dim).draws(200)[:, :num_draws]
    space = Product({"theta": Real(dim)})
    aggregator = AffineFamily().fit(space, draws, Precision())
    assert isinstance(aggregator.root, DenseOperator)
    weights = aggregator.root.dense() @ np.asarray(aggregator.transforms.values)
    np.testing.assert_allclose(weights.sum(axis=0), np.eye(dim), atol=1e-9)
    np.testing.assert_allclose(weights[0] @ weights[1], weights[1] @ weights[0], atol=1e-12)
    by_hand = np.einsum("kij,knj->ni", weights, draws)
    np.testing.assert_allclose(aggregate(aggregator, draws), by_hand, rtol=1e-9)
    # as if shards were independent, the sum of prepared draws has covariance I
    prepared = np.asarray(prepare_all(aggregator, draws))
    np.testing.assert_allclose(prepared.var(axis=1).sum(axis=0), 1.0, rtol=1e-9)


def test_the_precision_is_the_inverse_of_the_covariance(shards):
    draws = shards.draws(200)
    aggregator = AffineFamily().fit(SPACE, draws, Precision())
    moments = aggregator.moments(prepare_all(aggregator, draws))
    covariance = aggregator.covariance(moments).dense()
    np.testing.assert_allclose(aggregator.precision(moments) @ covariance, np.eye(3), atol=1e-9)


def frame_near(point):
    """A frame that is not aligned with the coordinates."""
    return frame_of_curvature(
        point, np.array([[2.0, 0.9, 0.0], [0.9, 1.0, -0.2], [0.0, -0.2, 0.5]])
    )


class InFrame(AbstractFamily):
    """Affine maps in a frame, however many draws there are."""

    def fit(self, space, draws, start):
        return AffineFamily()._affine(_framed_averages(draws, start, frame_near(np.zeros(3))))


def test_affine_maps_in_a_frame_keep_the_laws():
    check_aggregator(InFrame(), SPACE)


@pytest.mark.parametrize("per_shard", [True, False])
def test_few_draws_are_averaged_in_the_frame_of_the_target(per_shard, shards):
    draws = shards.draws(200)[:, :2]
    family = AffineFamily(per_shard=per_shard)
    aggregator = family.fit(SPACE, draws, Uniform(), frame_near)
    assert isinstance(aggregator.root, FrameOperator)
    np.testing.assert_allclose(
        aggregate(aggregator, draws), np.mean(draws, axis=0), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(aggregator.shard_weights(), np.full((4, 3), 1 / 4), rtol=1e-9)
    # in the frame, the weights are the shards' precisions
    white = np.asarray(frame_near(np.zeros(3)).root.solve(np.asarray(draws)))
    weights = np.asarray(Precision().diagonal(jnp.asarray(white)).values)
    means = np.einsum("kj,knj->nj", weights, white) @ frame_near(np.zeros(3)).root.T
    aggregator = family.fit(SPACE, draws, Precision(), frame_near)
    np.testing.assert_allclose(aggregate(aggregator, draws), means, rtol=1e-9)


def test_prepared_draws_in_a_frame_have_unit_variances(shards):
    draws = shards.draws(200)[:, :2]
    aggregator = AffineFamily().fit(SPACE, draws, Uniform(), frame_near)
    prepared = np.asarray(prepare_all(aggregator, draws))
    np.testing.assert_allclose(prepared.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(prepared.var(axis=1).sum(axis=0), 1, rtol=1e-9)
    moments = aggregator.moments(prepared)
    assert aggregator.precision(moments) is None
    assert aggregator.covariance(moments) is None


def test_enough_draws_and_diagonal_scales_need_no_frame(shards):
    def refuse(point):
        raise AssertionError("a frame costs products with all directions")

    for full, kind in ((None, DenseOperator), (False, DiagonalOperator), (True, DenseOperator)):
        aggregator = AffineFamily(full).fit(SPACE, shards.draws(200), Precision(), refuse)
        assert isinstance(aggregator.root, kind)


def test_without_a_frame_there_is_a_scale_for_each_coordinate(shards):
    draws = shards.draws(200)[:, :2]
    aggregator = AffineFamily().fit(SPACE, draws, Precision(), lambda point: None)
    assert isinstance(aggregator.root, DiagonalOperator)
