import warnings

import numpy as np

import vcmc
from vcmc.inference.draw_counts import needs_more_draws


def needs(num_shards, ess, dominant=False):
    """Shards of equal weight, or one that has most of the variance."""
    weights = np.full((num_shards, 3), 1 / num_shards)
    variances = np.ones((num_shards, 3))
    if dominant:
        variances[0] = 1000.0
    return needs_more_draws(weights, variances, np.full(num_shards, float(ess)))


def test_many_shards_need_few_draws_each():
    assert not needs(20, 50)
    assert needs(2, 100)
    assert not needs(2, 1000)


def test_a_shard_that_has_all_the_variance_needs_many():
    assert needs(20, 50, dominant=True)
    assert not needs(20, 2000, dominant=True)


def test_a_run_has_the_draws_it_needs(conjugate):
    """Shards make few draws, the posterior has many; a single shard makes them all."""
    arguments = {"progress": False, "seed": 0}
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=10, **arguments)
    assert tree["posterior"].sizes["draw"] == tree.attrs["num_draws"] / 4 == 1250
    assert tree["subposterior"].sizes["draw"] == tree.attrs["shard_draws"] == 100
    assert tree.attrs["verdict"] == "good"
    one = vcmc.infer(conjugate.model, conjugate.rows, num_shards=1, num_draws=900, **arguments)
    assert one["posterior"].sizes["draw"] == one.attrs["shard_draws"] / 4 == 225


def test_draws_of_a_shard_can_be_fixed(conjugate):
    options = {"num_shards": 4, "shard_draws": 40, "num_draws": 600, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        tree = vcmc.infer(conjugate.model, conjugate.rows, **options)
    assert dict(tree["posterior"].sizes) == {"chain": 4, "draw": 150, "beta_dim_0": 3}
    assert tree["subposterior"].sizes["draw"] == 40
