"""Laws of combiners: K = 1 leaves draws alone; exact on equal Gaussian shards."""

import numpy as np
import pytest

from vcmc import combiners
from vcmc.aggregators import VectorFamily

COMBINERS = {
    "Average": combiners.Average(),
    "Consensus": combiners.Consensus(),
    "Consensus, diagonal": combiners.Consensus(diagonal=True),
    "Parametric": combiners.Parametric(),
    "Variational": combiners.Variational(),
    "Variational, diagonal": combiners.Variational(family=VectorFamily(full=False)),
}
CASES = pytest.mark.parametrize("combiner", COMBINERS.values(), ids=COMBINERS.keys())


def test_every_combiner_is_here(members):
    classes = members(combiners, combiners.AbstractCombiner)
    assert classes == {type(combiner) for combiner in COMBINERS.values()}


@CASES
def test_one_shard_is_left_alone(combiner, gaussian_shards):
    shards = gaussian_shards(1, 3).subposteriors(100)
    np.testing.assert_allclose(combiner(shards).draws, shards.draws[0], rtol=1e-9, atol=1e-12)


@CASES
@pytest.mark.parametrize("dim", [1, 4])
def test_exact_on_equal_gaussian_shards(combiner, dim, gaussian_shards):
    num_shards, num_draws = 6, 20_000
    one = gaussian_shards(1, dim, seed=dim)
    equal = type(one)(np.tile(one.means, (num_shards, 1)), np.tile(one.covariances, (num_shards, 1, 1)))
    merged = np.asarray(combiner(equal.subposteriors(num_draws)).draws)
    mean, covariance = equal.product()
    expected = np.sqrt(np.diag(covariance))
    assert merged.shape == (num_draws, dim)
    assert (np.abs(merged.mean(axis=0) - mean) < 4 * expected / np.sqrt(num_draws)).all()
    assert (np.abs(merged.std(axis=0) / expected - 1) < 4 / np.sqrt(2 * num_draws)).all()
