import numpy as np
import pytest

from vcmc.combiners.kernels import (
    Kernels,
    ProductDraws,
    check_bandwidth,
    default_bandwidth,
    mixing_warnings,
    multiply,
)


@pytest.mark.parametrize("num_shards", [2, 3, 5])
def test_an_odd_shard_is_not_lost(num_shards, agreeing, subposteriors):
    draws, mean = agreeing(num_shards, 1, 4000)
    product = multiply(subposteriors(draws), Kernels(0.2, shrink=True), pairwise=True)
    assert product.draws.shape == (4000, 1)
    # kernels of a few levels add to the noise of the draws: three times their error
    assert abs(product.draws.mean() - mean[0]) < 4 * 3 / np.sqrt(num_shards * 4000)
    assert product.draws.std() * np.sqrt(num_shards) == pytest.approx(1, abs=0.1)


def test_the_bandwidth_is_scotts_for_the_fewest_draws(subposteriors):
    shards = subposteriors([np.zeros((count, 1)) for count in (1000, 32)])
    assert default_bandwidth(shards) == pytest.approx(32 ** (-1 / 5))


@pytest.mark.parametrize("bandwidth", [0.0, 1.0])
def test_bandwidths_out_of_range_are_refused(bandwidth):
    with pytest.raises(ValueError, match="between 0 and 1"):
        check_bandwidth(bandwidth)


def test_chains_that_hardly_move_are_warned_of():
    draws = np.zeros((1, 1))
    assert mixing_warnings(ProductDraws(draws, 0.5)) == []
    assert "1.0% of proposals" in mixing_warnings(ProductDraws(draws, 0.01))[0]
