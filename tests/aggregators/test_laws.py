"""The laws of aggregators are those of vcmc.testing; every family keeps them."""

from functools import cache

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
    VectorFamily,
)
from vcmc.aggregators.base import aggregate, prepare_all
from vcmc.space import Product
from vcmc.testing import check_aggregator

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
    {
        "scale": vcmc.Positive(),
        **CENTRES,
        "precision": vcmc.PositiveDefinite(2),
        "beta": vcmc.Real(3),
    }
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
    """Draws of shards that differ in location and scale, around well separated components."""
    dim = FAMILIES[name][1].dim
    generator = np.random.default_rng(num_shards)
    places = 3 * np.linspace(-1, 1, dim) + 0.1 * generator.normal(size=(num_shards, 1, dim))
    scales = generator.uniform(0.05, 0.2, size=(num_shards, 1, dim))
    return jnp.asarray(places + scales * generator.normal(size=(num_shards, num_draws, dim)))


@cache
def fitted(name, num_shards):
    family, space = FAMILIES[name]
    return family.fit(space, shard_draws(name, num_shards), Precision())


@pytest.mark.slow
def test_every_aggregator_is_here(members):
    classes = members(aggregators, aggregators.AbstractAggregator | aggregators.AbstractFamily)
    values = {type(fitted(name, 4)) for name in FAMILIES}
    assert classes == values | {type(family) for family, _ in FAMILIES.values()}


SLOW_CASES = (
    "vector, full, as in the paper",
    "spectral",
    "spectral, full",
    "affine, exchangeable",
    "blocks, spectral",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW_CASES else ()) for name in FAMILIES],
)
def test_it_keeps_the_laws(name):
    """The first shard's labels of components are the common ones, where there are any."""
    family, space = FAMILIES[name]
    check_aggregator(family, space, first_shard_leads=bool(space.labelled()))


@CASES
def test_closed_forms_are_claimed_where_there_are_some(name):
    """That they are right is a law."""
    aggregator = fitted(name, 4)
    moments = aggregator.moments(prepare_all(aggregator, shard_draws(name, 4)))
    assert (aggregator.precision(moments) is None) == name.startswith("spectral")
    assert (aggregator.covariance(moments) is None) == name.startswith(("spectral", "blocks"))


def test_affine_maps_begin_as_consensus():
    draws = shard_draws("affine", 4)
    for full in (False, True):
        consensus = VectorFamily(full=full).fit(REAL, draws, Precision())
        for per_shard in (False, True):
            affine = AffineFamily(full=full, per_shard=per_shard).fit(REAL, draws, Precision())
            np.testing.assert_allclose(
                aggregate(affine, draws), aggregate(consensus, draws), atol=1e-10
            )
