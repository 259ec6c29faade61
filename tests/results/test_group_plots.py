"""Plots of groups, from draws and from summaries."""

import numpy as np
import pytest

from vcmc import plot_groups
from vcmc.results.group_plots import group_intervals
from vcmc.results.tree import make_tree

LABELS = np.array(["b", "a", "c"])
DRAWS = np.random.default_rng(0).normal(size=(1, 500, 3, 2)) + np.array([2.0, 0.0, 1.0])[:, None]
NAMES = {"dims": {"alpha": np.array(["county", ""])}, "coords": {"county": LABELS}}


def tree_of(mode):
    groups = {"posterior": {"mu": np.zeros((1, 500))}, **NAMES}
    if mode == "draws":
        groups["posterior"]["alpha"] = DRAWS
    elif mode == "summary":
        flat = DRAWS[0]
        groups |= {
            f"local_{name}": {"alpha": values}
            for name, values in {
                "mean": flat.mean(axis=0),
                **{
                    f"q{level:02d}": np.quantile(flat, level / 100, axis=0) for level in (5, 50, 95)
                },
            }.items()
        }
    return make_tree(groups, {"groups": "county"})


@pytest.mark.parametrize("mode", ["draws", "summary"])
def test_intervals_are_quantiles_by_group(mode):
    first, second = group_intervals(tree_of(mode))
    assert (first.label, second.label) == ("alpha[0]", "alpha[1]")
    assert first.groups.tolist() == LABELS.tolist()
    np.testing.assert_allclose(first.low, np.quantile(DRAWS[0, :, :, 0], 0.05, axis=0))
    assert first.ordered().groups.tolist() == ["a", "c", "b"]


@pytest.mark.parametrize("mode", ["draws", "summary"])
def test_groups_are_drawn_in_the_order_of_their_medians(mode):
    pytest.importorskip("matplotlib")
    figure = plot_groups(tree_of(mode))
    assert [axes.get_title() for axes in figure.axes] == ["alpha[0]", "alpha[1]"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["a", "c", "b"]


def test_results_without_groups_are_refused():
    with pytest.raises(ValueError, match="has no groups"):
        plot_groups(make_tree({"posterior": {"mu": np.zeros((1, 5))}}, {}))
    with pytest.raises(ValueError, match='locals="none"'):
        plot_groups(tree_of("none"))
    with pytest.raises(ValueError, match=r"names must be local parameters, \['alpha'\]; got 'mu'"):
        plot_groups(tree_of("draws"), ["mu"])
