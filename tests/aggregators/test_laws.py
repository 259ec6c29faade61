"""Laws of aggregators: F(θ, …, θ) = θ; K = 1 is the identity; the support is kept; shards may be relabelled."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc import aggregators
from vcmc.aggregators import (
    AffineFamily,
    BlockFamily,
    CombinatorialFamily,
    Precision,
    SpectralFamily,
    Uniform,
    VectorFamily,
)
from vcmc.aggregators.base import aggregate, prepare_all
from vcmc.aggregators.weights import Free, weights_of
from vcmc.space import Product

REAL = Product({"theta": vcmc.Real(3)})
MATRIX = Product({"precision": vcmc.PositiveDefinite(3)})
CENTRES = Product(
    {
        "centres": vcmc.Exchangeable(3, vcmc.Real(2)),
        "scales": vcmc.Exchangeable(3, vcmc.Positive()),
        "shares": vcmc.Simplex(3, exchangeable=True),
    }
)
MIXED = Product(
    {"scale": vcmc.Positive(), **CENTRES, "precision": vcmc.PositiveDefinite(2), "beta": vcmc.Real(3)}
)

FAMILIES = {
    "vector": (VectorFamily(full=False), REAL),
    "vector, full": (VectorFamily(full=True), REAL),
    "vector, full, as in the paper": (VectorFamily(full=True, framed=False), REAL),
    "spectral": (SpectralFamily(), MATRIX),
    "spectral, full": (SpectralFamily(full=True), MATRIX),
    "combinatorial": (CombinatorialFamily(), CENTRES),
    "affine": (AffineFamily(), REAL),
    "affine, each shard, diagonal": (AffineFamily(full=False, per_shard=True), REAL),
    "affine, exchangeable": (AffineFamily(), MIXED),
    "blocks, spectral": (BlockFamily({"precision": SpectralFamily(full=True)}), MIXED),
}
CASES = pytest.mark.parametrize("name", FAMILIES)


@cache
def shard_draws(name, num_shards, num_draws=200):
    """Draws of shards that differ in place and spread, around a point whose components lie apart."""
    dim = FAMILIES[name][1].dim
    generator = np.random.default_rng(num_shards)
    places = 3 * np.linspace(-1, 1, dim) + 0.1 * generator.normal(size=(num_shards, 1, dim))
    scales = generator.uniform(0.05, 0.2, size=(num_shards, 1, dim))
    return jnp.asarray(places + scales * generator.normal(size=(num_shards, num_draws, dim)))


@cache
def fitted(name, num_shards, start=Precision):
    family, space = FAMILIES[name]
    return family.fit(space, shard_draws(name, num_shards), start())


def test_every_aggregator_is_here(members):
    classes = members(aggregators, aggregators.AbstractAggregator | aggregators.AbstractFamily)
    values = {type(fitted(name, 4)) for name in FAMILIES}
    assert classes == values | {type(family) for family, _ in FAMILIES.values()}


@CASES
@pytest.mark.parametrize("start", [Uniform, Precision])
def test_shards_that_agree_are_left_alone(name, start):
    point = shard_draws(name, 4)[0, 0]
    merged = eqx.filter_jit(fitted(name, 4, start))(jnp.tile(point, (4, 1)))
    np.testing.assert_allclose(merged, point, rtol=1e-8, atol=1e-9)


@CASES
def test_one_shard_is_left_alone(name):
    draws, aggregator = shard_draws(name, 1), fitted(name, 1)
    np.testing.assert_allclose(aggregate(aggregator, draws), draws[0], rtol=1e-8, atol=1e-9)
    log_dets = aggregator.log_dets(aggregator.prepare(draws[:, 0]))
    np.testing.assert_allclose(log_dets, 0, atol=1e-8)  # volumes are left alone, too


@CASES
def test_merging_all_draws_is_merging_each(name):
    draws = shard_draws(name, 4)[:, :10]
    each = eqx.filter_jit(jax.vmap(fitted(name, 4), in_axes=1))(draws)
    np.testing.assert_allclose(aggregate(fitted(name, 4), draws), each, rtol=1e-9, atol=1e-11)


@CASES
def test_the_support_is_kept(name):
    space = FAMILIES[name][1]
    merged = aggregate(fitted(name, 4), shard_draws(name, 4))
    params = jax.jit(jax.vmap(space.constrain))(merged)
    for parameter, inside in space.items():
        assert bool(jnp.all(inside.constraint({})(params[parameter]))), parameter


@CASES
def test_shards_may_be_relabelled_with_their_weights(name):
    """All but the first shard, whose labels of components are the common ones."""
    family, space = FAMILIES[name]
    draws, order = shard_draws(name, 4), jnp.array([0, 3, 1, 2])
    relabelled = family.fit(space, draws[order], Precision())
    expected = aggregate(fitted(name, 4), draws)
    np.testing.assert_allclose(aggregate(relabelled, draws[order]), expected, rtol=1e-7, atol=1e-9)


@CASES
@pytest.mark.parametrize("start", [Uniform, Precision])
def test_weights_add_up_to_one(name, start):
    for weights in weights_of(fitted(name, 4, start)):
        if isinstance(weights, Free):
            continue  # they need not
        total = weights.values.sum(axis=0)
        expected = np.ones(len(total)) if total.ndim == 1 else np.eye(len(total))
        np.testing.assert_allclose(total, expected, atol=1e-8)


@CASES
def test_shard_weights_are_shown_for_every_coordinate(name):
    weights = fitted(name, 4).shard_weights()
    assert weights.shape == (4, FAMILIES[name][1].dim)
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=1e-7)


@CASES
def test_expected_squares_are_those_of_independent_draws(name):
    """All combinations of a few draws of every shard, or a closed form that is not claimed."""
    aggregator, dim = fitted(name, 4), FAMILIES[name][1].dim
    claimed = aggregator.precision(aggregator.moments(prepare_all(aggregator, shard_draws(name, 4))))
    if claimed is None:
        assert name.startswith("spectral")
        return
    few = shard_draws(name, 4)[:, :4]
    root = np.random.default_rng(1).normal(size=(dim, dim))
    # blocks do not claim what goes across them, nor what has no closed form
    precision = jnp.asarray(np.where(claimed != 0, root @ root.T, 0.0))
    combinations = np.stack(np.meshgrid(*[np.arange(4)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    merged = aggregate(aggregator, jnp.swapaxes(few[np.arange(4), combinations], 0, 1))
    off = np.asarray(merged) - np.linspace(-1, 1, dim)
    moments = aggregator.moments(prepare_all(aggregator, few))
    found = aggregator.expected_square(moments, jnp.linspace(-1, 1, dim), precision)
    np.testing.assert_allclose(found, np.mean(np.sum(off @ precision * off, axis=1)), rtol=1e-9)


@CASES
def test_covariances_are_those_of_independent_draws(name):
    """Where there is a closed form: against all combinations of a few draws of every shard."""
    aggregator = fitted(name, 4)
    few = shard_draws(name, 4)[:, :4]
    found = aggregator.covariance(aggregator.moments(prepare_all(aggregator, few)))
    if found is None:
        assert name.startswith(("spectral", "blocks"))
        return
    combinations = np.stack(np.meshgrid(*[np.arange(4)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    merged = np.asarray(aggregate(aggregator, jnp.swapaxes(few[np.arange(4), combinations], 0, 1)))
    expected = np.cov(merged.T, bias=True)
    np.testing.assert_allclose(
        found, expected if found.ndim == 2 else np.diag(expected), rtol=1e-9, atol=1e-12
    )


def test_affine_maps_begin_as_consensus():
    draws = shard_draws("affine", 4)
    for full in (False, True):
        consensus = VectorFamily(full=full).fit(REAL, draws, Precision())
        for per_shard in (False, True):
            affine = AffineFamily(full=full, per_shard=per_shard).fit(REAL, draws, Precision())
            np.testing.assert_allclose(aggregate(affine, draws), aggregate(consensus, draws), atol=1e-10)
