import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.aggregators import (
    BlockFamily,
    Blocks,
    Combinatorial,
    CombinatorialFamily,
    Diagonal,
    Matrices,
    Precision,
    Spectral,
    SpectralFamily,
    Vector,
    VectorFamily,
)
from vcmc.space import Product

SPACE = Product(
    {
        "beta": vcmc.Real(12),
        "centres": vcmc.Exchangeable(3, vcmc.Real(2)),
        "scale": vcmc.Positive(),
        "shares": vcmc.Simplex(3, exchangeable=True),
        "precision": vcmc.PositiveDefinite(2),
    }
)
DRAWS = jnp.asarray(np.random.default_rng(0).normal(size=(3, 50, SPACE.dim)))


def test_families_follow_from_spaces():
    fitted = BlockFamily().fit(SPACE, DRAWS, Precision())
    assert isinstance(fitted, Blocks)
    assert [type(part) for part in fitted.parts] == [Vector, Combinatorial, Vector, Vector]
    assert isinstance(fitted.parts[0].weights, Diagonal)  # twelve coordinates
    assert isinstance(fitted.parts[3].weights, Matrices)  # three of them
    assert fitted.coordinates[1] == SPACE.indices("centres", "shares")  # they share their labels
    assert sorted(sum(fitted.coordinates, ())) == list(range(SPACE.dim))


def test_families_can_be_named():
    family = BlockFamily({"precision": SpectralFamily(), "beta": VectorFamily(full=True)})
    fitted = family.fit(SPACE, DRAWS, Precision())
    assert isinstance(fitted.parts[3], Spectral)
    assert isinstance(fitted.parts[0].weights, Matrices)


def test_a_single_block_needs_no_blocks():
    space = Product({"beta": vcmc.Real(12)})
    assert isinstance(BlockFamily().fit(space, DRAWS[:, :, :12], Precision()), Vector)


def test_blocks_do_not_see_each_other():
    fitted = BlockFamily().fit(SPACE, DRAWS, Precision())
    before = fitted(DRAWS[:, 0])
    after = fitted(DRAWS[:, 0].at[:, 0].add(1.0))
    assert np.flatnonzero(np.abs(after - before) > 1e-12).tolist() == [0]


def test_unknown_names_are_refused():
    with pytest.raises(
        ValueError, match=r"families name \['gamma'\], but the parameters are \['beta'"
    ):
        BlockFamily({"gamma": VectorFamily()}).fit(SPACE, DRAWS, Precision())


def test_parameters_that_share_labels_share_a_family():
    named = BlockFamily({"shares": CombinatorialFamily(VectorFamily(full=True))}).fit(
        SPACE, DRAWS, Precision()
    )
    assert named.coordinates[1] == SPACE.indices("centres", "shares")
    assert isinstance(named.parts[1].inner.weights, Matrices)
    family = BlockFamily(
        {"shares": CombinatorialFamily(VectorFamily(full=True)), "centres": CombinatorialFamily()}
    )
    with pytest.raises(
        ValueError,
        match=r"\['centres', 'shares'\] have exchangeable components with the same labels",
    ):
        family.check(SPACE)
