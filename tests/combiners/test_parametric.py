"""Products of Gaussians."""

import numpy as np
import pytest

from vcmc.combiners import Parametric


@pytest.mark.parametrize("num_draws", [60, 100, 1000])
def test_few_draws_do_not_make_the_product_wide_or_narrow(num_draws, gaussian_shards):
    """Shards of one shape, as those of rows dealt at random: their covariances rest on the draws of
    all."""
    one = gaussian_shards(1, 20, seed=3)
    equal = type(one)(np.tile(one.means, (10, 1)), np.tile(one.covariances, (10, 1, 1)))
    expected = np.sqrt(np.diag(equal.product()[1]))
    ratios = [
        np.asarray(Parametric()(equal.independent(num_draws, seed)).draws).std(axis=0) / expected
        for seed in range(20)
    ]
    # an sd of n draws is off by a share of 1/√(2n), and all shards' covariances by that of ten
    # times as many
    noise = np.sqrt(1 / (2 * num_draws) + 1 / (20 * num_draws)) / np.sqrt(len(ratios))
    assert abs(np.mean(ratios) - 1) < 4 * noise + 0.01
