"""Trees: groups, dimensions and attributes."""

import numpy as np

import vcmc
from vcmc.results.tree import add_groups, build_tree, make_tree

GROUPS = {
    "posterior": {"beta": np.arange(12.0).reshape(2, 3, 2)},
    "subposterior": {"beta": np.zeros((4, 2, 3, 2))},
    "weights": {"beta": np.ones((4, 2))},
    "mean_error": {"beta": np.zeros(2)},
}


def test_every_group_has_its_dimensions():
    tree = make_tree(GROUPS, {"seed": 3})
    assert tree["posterior"]["beta"].dims[:2] == ("chain", "draw")
    assert tree["subposterior"]["beta"].dims[:3] == ("shard", "chain", "draw")
    assert tree["weights"]["beta"].dims[0] == "shard"
    assert tree["mean_error"]["beta"].shape == (2,)


def test_attributes_record_settings_and_versions():
    attributes = make_tree(GROUPS, {"seed": 3}).attrs
    assert attributes["seed"] == 3
    assert f"vcmc {vcmc.__version__}" in attributes["versions"]
    assert "python" in attributes
    assert build_tree(GROUPS, {"seed": 3}).attrs == {"seed": 3}


def test_groups_are_replaced_and_dropped_without_changing_the_tree():
    tree = build_tree(GROUPS, {"seed": 3, "verdict": "poor"})
    new = add_groups(
        tree, {"posterior": {"beta": np.ones((1, 5, 2))}}, {"verdict": "good"}, drop=("weights",)
    )
    assert new["posterior"].sizes["draw"] == 5
    assert "weights" not in new.children
    assert new.attrs == {"seed": 3, "verdict": "good"}
    assert tree["posterior"].sizes["draw"] == 3
    assert tree.attrs["verdict"] == "poor"


def test_added_groups_have_their_own_labels():
    labels = {"dims": {"alpha": np.array(["county"])}, "coords": {"county": np.array(["a", "b"])}}
    new = add_groups(build_tree(GROUPS, {}), {"local_mean": {"alpha": np.ones(2)}, **labels}, {})
    assert new["local_mean"]["alpha"].dims == ("county",)
    assert new["local_mean"]["county"].to_numpy().tolist() == ["a", "b"]


def test_posterior_draws_concatenate_chains():
    draws = vcmc.posterior_draws(build_tree(GROUPS, {}))
    np.testing.assert_array_equal(draws["beta"], np.arange(12.0).reshape(6, 2))
