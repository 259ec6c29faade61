"""Quadratures of a standard normal: exactness, and what is refused."""

import numpy as np
import pytest

import vcmc
from vcmc.groups.quadrature import TwelveNodes, default_quadrature


@pytest.mark.parametrize(
    ("quadrature", "dim"),
    [
        (vcmc.GaussHermite(3), 1),
        (vcmc.GaussHermite(7), 2),
        (TwelveNodes(), 2),
        (vcmc.QuasiRandom(16), 2),
        (vcmc.QuasiRandom(64), 5),
        (vcmc.QuasiRandom(8), 12),  # fewer nodes than the covariance needs: it takes more
    ],
)
def test_weights_sum_to_one_and_moments_are_exact(quadrature, dim):
    points, log_weights = quadrature.nodes(dim)
    weights = np.exp(log_weights)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(weights @ points, 0, atol=1e-12)
    np.testing.assert_allclose(points.T @ (weights[:, None] * points), np.eye(dim), atol=1e-10)


def test_gauss_hermite_nodes_are_exact_for_high_powers():
    points, log_weights = vcmc.GaussHermite(5).nodes(1)
    moments = [np.exp(log_weights) @ points[:, 0] ** power for power in range(10)]
    np.testing.assert_allclose(moments, [1, 0, 1, 0, 3, 0, 15, 0, 105, 0], atol=1e-10)


def test_twelve_nodes_are_exact_up_to_degree_seven():
    points, log_weights = TwelveNodes().nodes(2)
    moments = {0: 1, 2: 1, 4: 3, 6: 15}
    for first in range(8):
        for second in range(8 - first):
            exact = moments.get(first, 0) * moments.get(second, 0)
            estimate = np.exp(log_weights) @ (points[:, 0] ** first * points[:, 1] ** second)
            assert estimate == pytest.approx(exact, abs=1e-12)


def test_many_groups_have_more_nodes():
    for dim in (1, 2):
        few, many = (len(default_quadrature(dim, count).nodes(dim).points) for count in (10, 10**5))
        assert many > few


def test_doubled_quadratures_have_more_nodes():
    for quadrature, dim in ((vcmc.GaussHermite(5), 1), (vcmc.QuasiRandom(16), 3)):
        more = quadrature.doubled(dim)
        assert len(more.nodes(dim).points) == 2 * len(quadrature.nodes(dim).points)
    assert vcmc.ExactGaussian().doubled(1) == default_quadrature(1)


@pytest.mark.parametrize("number", [2, 7.5, "many"])
def test_too_few_nodes_are_refused(number):
    with pytest.raises(ValueError, match="num_nodes must be an integer of at least 3"):
        vcmc.GaussHermite(number)
    with pytest.raises(ValueError, match="power of two"):
        vcmc.QuasiRandom(number)
