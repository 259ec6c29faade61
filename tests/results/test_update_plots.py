"""The plot of estimates over updates."""

import numpy as np
import pytest

import vcmc
from vcmc.results.tree import add_groups

pytest.importorskip("matplotlib")


def some_tree(num_updates=3):
    draws = np.random.default_rng(0).normal(size=(2, 50, 2))
    tree = vcmc.combine({"beta": draws, "extra": draws[..., 0]}, progress=False)
    history = {
        "updates": {
            "name": np.array([f"a very long name {number}" for number in range(num_updates)]),
            "verdict": np.array(["good", "doubtful", "unknown"] + ["poor"] * (num_updates - 3)),
        },
        "update_mean": {"beta": np.arange(2.0 * num_updates).reshape(-1, 2)},
        "update_sd": {"beta": np.full((num_updates, 2), 0.5)},
    }
    return add_groups(tree, history, {})


def test_every_element_has_a_panel_with_its_means():
    figure = vcmc.plot_updates(some_tree())
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == ["beta[0]", "beta[1]"]
    np.testing.assert_array_equal(panels[1].lines[0].get_ydata(), [1.0, 3.0, 5.0])
    ends = panels[0].collections[0].get_segments()[2]
    np.testing.assert_allclose(ends[:, 1], [4 - 1.645 / 2, 4 + 1.645 / 2])


def test_names_choose_elements_and_of_many_updates_some_are_named():
    figure = vcmc.plot_updates(some_tree(40), ["beta[1]"])
    (panel,) = figure.axes
    assert len(panel.get_xticks()) <= 12
    assert panel.get_xticklabels()[0].get_text() == "a very long "


def test_trees_without_estimates_are_refused():
    tree = some_tree()
    with pytest.raises(ValueError, match="results of vcmc"):
        vcmc.plot_updates(add_groups(tree, {}, {}, drop=("update_mean",)))
    with pytest.raises(ValueError, match="names must be among"):
        vcmc.plot_updates(tree, ["extra"])
