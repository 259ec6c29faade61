import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcmc
from vcmc.aggregators import Diagonal, Matrices, Precision, Spectral, SpectralFamily
from vcmc.space import Product

SPACE = Product({"precision": vcmc.PositiveDefinite(3)})


merge = eqx.filter_jit(lambda aggregator, points: aggregator(points))
constrain = jax.jit(SPACE.constrain)
project = eqx.filter_jit(lambda weights: weights.project())


def random_points(seed, scale=1.0):
    return scale * jax.random.normal(jax.random.key(seed), (4, SPACE.dim))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 3), st.booleans())
def test_every_merged_matrix_is_positive_definite(seed, scale, full):
    values = jax.random.normal(jax.random.key(seed), (4, 3, 3) if full else (4, 3))
    weights = project(
        (Matrices if full else Diagonal)(values)
    )  # some of them as small as they may be
    merged = merge(Spectral(weights, 3), random_points(seed, scale))
    eigenvalues = np.linalg.eigvalsh(constrain(merged)["precision"])
    assert np.isfinite(merged).all()
    assert eigenvalues.min() > 0


def test_it_is_the_papers_formula():
    points = random_points(0)
    weights = Diagonal(jax.random.uniform(jax.random.key(1), (4, 3))).project()
    expected = np.zeros((3, 3))
    for point, weight in zip(points, np.asarray(weights.values), strict=True):
        roots, vectors = np.linalg.eigh(SPACE.constrain(point)["precision"])
        rotation = vectors[:, ::-1].T  # the paper's R, with eigenvalues in decreasing order
        expected += rotation.T @ np.diag(weight * roots[::-1]) @ rotation
    found = SPACE.constrain(Spectral(weights, 3)(points))["precision"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    diagonal = Matrices(jax.vmap(jnp.diag)(weights.values))
    np.testing.assert_allclose(
        Spectral(diagonal, 3)(points), Spectral(weights, 3)(points), atol=1e-9
    )


@pytest.mark.slow
def test_log_volumes_are_exact_for_multiples_of_the_identity():
    """The part of a shard, Λ → wΛ, has a known Jacobian in real coordinates."""
    share, point = 0.3, random_points(2)[0]
    weights = Diagonal(jnp.array([[share] * 3, [1 - share] * 3]))

    def part(point):
        return SPACE.unconstrain({"precision": share * SPACE.constrain(point)["precision"]})

    expected = np.linalg.slogdet(jax.jacobian(part)(point))[1]
    aggregator = Spectral(weights, 3)
    prepared = aggregator.prepare(jnp.stack([point, point]))
    # log_dets measures volume at the sum, the Jacobian at the part: take the difference out
    volume = prepared.log_volumes[0]
    part_volume = aggregator.prepare(jnp.stack([part(point)] * 2)).log_volumes[0]
    np.testing.assert_allclose(
        aggregator.log_dets(prepared)[0] + volume - part_volume, expected, rtol=1e-9
    )


def test_weights_are_shown_by_row_of_the_triangle():
    """NumPyro's coordinates are the strict triangle, row by row, and then the diagonal."""
    weights = Diagonal(jnp.array([[0.1, 0.2, 0.3], [0.9, 0.8, 0.7]]))
    np.testing.assert_allclose(
        Spectral(weights, 3).shard_weights()[0], [0.2, 0.3, 0.3, 0.1, 0.2, 0.3]
    )


def test_it_is_for_one_matrix():
    with pytest.raises(TypeError, match=r"for one parameter in vcmc.PositiveDefinite.*BlockFamily"):
        SpectralFamily().fit(Product({"beta": vcmc.Real(3)}), jnp.zeros((2, 5, 3)), Precision())
