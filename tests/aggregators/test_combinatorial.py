import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.aggregators import Combinatorial, CombinatorialFamily, Precision, Uniform
from vcmc.aggregators.base import aggregate
from vcmc.space import Product

SPACE = Product(
    {
        "centres": vcmc.Exchangeable(4, vcmc.Real(2)),
        "scales": vcmc.Exchangeable(4, vcmc.Positive()),
        "shares": vcmc.Simplex(4, exchangeable=True),
    }
)


@pytest.fixture(scope="module")
def draws():
    """Draws of six shards around the same four components, labelled alike."""
    generator = np.random.default_rng(0)
    middle = SPACE.unconstrain(
        {
            "centres": jnp.array([[-3.0, 0.0], [0.0, 3.0], [3.0, 0.0], [0.0, 0.0]]),
            "scales": jnp.array([1.0, 2.0, 0.5, 1.0]),
            "shares": jnp.array([0.1, 0.2, 0.3, 0.4]),
        }
    )
    places = 0.1 * generator.normal(size=(6, 1, SPACE.dim))
    return middle + jnp.asarray(places + 0.2 * generator.normal(size=(6, 300, SPACE.dim)))


@pytest.fixture(scope="module")
def relabelled(draws):
    """The same draws, the labels of all shards but the first shuffled."""
    generator = np.random.default_rng(1)
    orders = np.stack([np.arange(4)] + [generator.permutation(4) for _ in range(5)])
    shuffle = jax.jit(jax.vmap(jax.vmap(SPACE.relabel, in_axes=(0, None))))
    return shuffle(draws, jnp.asarray(orders)), orders


@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("start", [Uniform(), Precision()])
def test_labels_of_the_shards_do_not_matter(alternating, start, draws, relabelled):
    shuffled, orders = relabelled
    family = CombinatorialFamily(alternating=alternating)
    plain, aligned = family.fit(SPACE, draws, start), family.fit(SPACE, shuffled, start)
    np.testing.assert_array_equal(plain.alignment, np.tile(np.arange(4), (6, 1)))
    np.testing.assert_array_equal(
        np.take_along_axis(orders, np.asarray(aligned.alignment), axis=1), plain.alignment
    )
    np.testing.assert_allclose(aggregate(aligned, shuffled), aggregate(plain, draws), atol=1e-9)


def test_the_first_shards_labels_are_the_common_ones(draws):
    """Without shares: averages in stick-breaking coordinates depend on the order of the sticks."""
    order = jnp.array([2, 0, 3, 1])
    relabel = jax.jit(jax.vmap(SPACE.relabel, in_axes=(0, None)))
    moved = jnp.concatenate([relabel(draws[0], order)[None], draws[1:]])
    found = aggregate(CombinatorialFamily().fit(SPACE, moved, Precision()), moved)
    expected = relabel(
        aggregate(CombinatorialFamily().fit(SPACE, draws, Precision()), draws), order
    )
    compared = np.array(SPACE.indices("centres", "scales"))
    np.testing.assert_allclose(found[:, compared], expected[:, compared], atol=1e-9)


@pytest.mark.slow
def test_alternating_finds_labels_that_the_first_shard_misleads_about():
    """The first shard's components are just closer to the wrong ones: the others outvote it."""
    space = Product({"centres": vcmc.Exchangeable(2, vcmc.Real(1))})
    noise = 0.05 * np.random.default_rng(0).normal(size=(5, 200, 2))
    places = np.array([[0.3, 0.0], [-3.0, 0.28], [-3.0, 0.28], [-3.0, 0.28], [-3.0, 0.28]])
    draws = jnp.asarray(places[:, None] + noise)
    fitted = CombinatorialFamily().fit(space, draws, Uniform())
    wrong = Combinatorial(fitted.inner, jnp.array([[0, 1], [0, 1], [1, 0], [0, 1], [0, 1]]), space)
    np.testing.assert_array_equal(wrong.realigned(draws).alignment, fitted.alignment)
    greedy = Combinatorial(fitted.inner, wrong.alignment, space, alternating=False)
    np.testing.assert_array_equal(greedy.realigned(draws).alignment, wrong.alignment)


@pytest.mark.slow
def test_distances_are_measured_in_units_of_spread():
    """A coordinate of large spread must not dominate the one that distinguishes components."""
    space = Product({"centres": vcmc.Exchangeable(2, vcmc.Real(2))})
    generator = np.random.default_rng(0)
    places = np.array([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 50.0], [0.0, -50.0]]])
    draws = places[:, None] + generator.normal(size=(2, 500, 2, 2)) * [0.01, 100.0]
    fitted = CombinatorialFamily().fit(space, jnp.asarray(draws.reshape(2, 500, 4)), Uniform())
    np.testing.assert_array_equal(fitted.alignment, [[0, 1], [1, 0]])


def test_it_is_for_exchangeable_parameters():
    with pytest.raises(
        TypeError, match=r"combinatorial family is for parameters in vcmc.Exchangeable"
    ):
        CombinatorialFamily().fit(
            Product({"beta": vcmc.Real(3)}), jnp.zeros((2, 5, 3)), Precision()
        )
