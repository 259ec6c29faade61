"""Entropies against closed forms, and the order of the bounds."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from vcmc.linalg.operators import DenseOperator, DiagonalOperator
from vcmc.variational.entropies import (
    EntropyInputs,
    EntropyPower,
    Gaussian,
    GaussianSum,
    NearestNeighbours,
    Relaxed,
    Tighter,
)

ENTROPIES = [Relaxed(), Tighter(), EntropyPower()]


@pytest.mark.parametrize(("entropy", "expected"), [(Relaxed(), 0.234), (EntropyPower(), 0.1)])
def test_two_shards_of_precisions_one_and_nine(entropy, expected):
    """The relaxation is biased if shards differ; the power bound is exact in one dimension."""
    precisions = np.array([1.0, 9.0])
    entropies = jnp.asarray(0.5 * np.log(2 * np.pi * np.e / precisions))

    def negative(share):
        weights = np.array([share, 1 - share])
        cross = -0.5 * precisions.sum() * np.sum(weights**2 / precisions)
        return -(cross + float(entropy(EntropyInputs(entropies, jnp.log(weights), None, 1))))

    found = minimize_scalar(
        negative, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-8}
    ).x
    assert found == pytest.approx(expected, abs=5e-4)


def test_bounds_are_ordered():
    generator = np.random.default_rng(0)
    for _ in range(50):
        entropies, log_dets = jnp.asarray(generator.normal(size=(2, 5)))
        values = [
            float(entropy(EntropyInputs(entropies, log_dets, None, 3))) for entropy in ENTROPIES
        ]
        assert values == sorted(values)


def test_a_gaussian_sum_has_the_entropy_of_its_covariance():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    unused = jnp.zeros(3)
    for operator, log_det in (
        (DenseOperator(jnp.asarray(covariance)), np.log(1.75)),
        (DiagonalOperator(jnp.asarray([2.0, 1.0])), np.log(2.0)),
    ):
        entropy = GaussianSum()(EntropyInputs(unused, unused, operator, 2))
        assert float(entropy) == pytest.approx(2 * NORMAL + 0.5 * log_det, rel=1e-12)


def test_a_gaussian_sum_needs_a_covariance():
    with pytest.raises(TypeError, match=r"GaussianSum is for families that are linear.*e\.g\."):
        GaussianSum()(EntropyInputs(jnp.zeros(3), jnp.zeros(3), None, 2))


NORMAL = 0.5 * np.log(2 * np.pi * np.e)


@pytest.mark.parametrize(
    ("estimate", "draw", "expected"),
    [
        (Gaussian(), lambda g: g.normal(size=(5000, 3)) * [1.0, 2.0, 3.0], 3 * NORMAL + np.log(6)),
        (
            NearestNeighbours(),
            lambda g: g.normal(size=(5000, 3)) * [1.0, 2.0, 3.0],
            3 * NORMAL + np.log(6),
        ),
        (NearestNeighbours(1), lambda g: g.normal(size=(5000, 1)), NORMAL),
        (NearestNeighbours(), lambda g: g.exponential(size=(5000, 1)), 1.0),
        (NearestNeighbours(), lambda g: g.uniform(0, 4, size=(5000, 2)), 2 * np.log(4)),
    ],
)
def test_entropies_of_known_densities(estimate, draw, expected):
    """Errors are about 0.02 for 5 000 draws; edges bias nearest neighbours by as much."""
    found = float(estimate(jnp.asarray(draw(np.random.default_rng(0)))[None])[0])
    assert found == pytest.approx(expected, abs=0.07)


def test_repeated_draws_do_not_fool_nearest_neighbours():
    draws = np.repeat(np.random.default_rng(0).normal(size=(3000, 1)), 8, axis=0)
    assert float(NearestNeighbours()(jnp.asarray(draws)[None])[0]) == pytest.approx(
        NORMAL, abs=0.07
    )


def test_fewer_draws_than_dimensions_still_have_an_entropy():
    draws = jnp.asarray(np.random.default_rng(0).normal(size=(4, 10, 20)))
    assert (
        np.abs(np.asarray(Gaussian()(draws)) - 20 * NORMAL).max() < 5
    )  # rounding noise would be 200 off


def test_nearest_neighbours_need_draws():
    with pytest.raises(
        ValueError, match="more draws than neighbours and dimensions; got 1 different draws in 2"
    ):
        NearestNeighbours()(jnp.zeros((1, 3, 2)))
    with pytest.raises(ValueError, match="num_neighbours must be 1 or more; got 0"):
        NearestNeighbours(0)


def test_entropies_of_many_coordinates_take_no_matrices():
    """Variances alone count, which is exact for independent coordinates."""
    draws = (
        np.random.default_rng(0).normal(size=(2, 400, 1500)) * np.array([1.0, 3.0])[:, None, None]
    )
    entropies = Gaussian()(jnp.asarray(draws))
    exact = 1500 * (0.5 * np.log(2 * np.pi * np.e) + np.log([1.0, 3.0]))
    # the log of a variance of 400 draws is low by 1/399 on average, and has sd sqrt(2/399)
    np.testing.assert_allclose(
        entropies + 0.5 * 1500 / 399, exact, atol=4.5 * 0.5 * np.sqrt(1500 * 2 / 399)
    )
