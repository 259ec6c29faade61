"""Effective draws of a result."""

import numpy as np

import vcmc
from vcmc.results.effective_draws import (
    effective_draws,
    effective_draws_of,
    max_effective_draws,
    stored_source,
)
from vcmc.results.tree import make_tree


def test_constants_have_none_and_others_at_most_the_bound():
    draws = np.random.default_rng(0).normal(size=(2, 500, 3))
    draws[..., 1] = 4.0
    ess = effective_draws(draws, np.inf)
    assert np.isnan(ess[1])
    assert 700 < ess[0] <= 1000  # independent draws
    assert effective_draws(draws, 50.0)[0] == 50


def test_means_that_rest_on_draws_of_shards_have_no_more_than_these():
    draws = np.random.default_rng(0).normal(size=(4, 300))
    tree = vcmc.combine({"a": draws}, num_draws=2000, seed=0, progress=False)
    source = stored_source(tree)
    assert max_effective_draws(tree) == source.moment_draws <= 300
    assert effective_draws_of(tree, ["a"])["a"] <= source.moment_draws
    frame = vcmc.summary(tree).to_frame()
    assert frame.loc["a", "ess"] == effective_draws_of(tree, ["a"])["a"]


def test_trees_without_combined_draws_have_none():
    tree = make_tree({"subposterior": {"a": np.ones((2, 1, 50))}}, {})
    assert effective_draws_of(tree, ["a"]) == {}
    bare = make_tree({"posterior": {"a": np.ones((1, 50))}}, {})
    assert max_effective_draws(bare) == np.inf
