"""Plots of groups."""

from itertools import pairwise

import numpy as np
import pytest

from vcmc import plot_groups, plot_shrinkage
from vcmc.results.tree import make_tree

pytest.importorskip("matplotlib")


def tree_of(means, sizes=None, dim=1):
    """A result with one draw more and one less than the mean of every group."""
    means = np.asarray(means, float)
    draws = means[:, None] + np.array([-1.0, 0.0, 1.0])[None, :, None, None] * np.ones(dim)
    labels = np.array([f"group {number}" for number in range(len(means))])
    groups = {
        "posterior": {"mu": np.zeros((1, 3)), "alpha": draws},
        "dims": {"alpha": np.array(["county", ""]), "num_rows": np.array(["county"])},
        "coords": {"county": labels},
    }
    if sizes is not None:
        groups["group_sizes"] = {"num_rows": np.asarray(sizes)}
    return make_tree(groups, {"groups": "county"})


def points_of(axes):
    return np.stack(axes.lines[-1].get_data(), axis=1)


def test_groups_are_drawn_in_the_order_of_their_means():
    figure = plot_groups(tree_of([2.0, 0.0, 1.0], dim=2))
    assert [axes.get_title() for axes in figure.axes] == ["alpha[0]", "alpha[1]"]
    for axes in figure.axes:
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == ["group 1", "group 2", "group 0"]
        np.testing.assert_allclose(points_of(axes), [[0, 0], [1, 1], [2, 2]])


def overlap(figure, axes):
    """Whether labels of the vertical axis overlap."""
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels() if label.get_text()]
    boxes.sort(key=lambda box: box.y0)
    return any(upper.y0 < lower.y1 for lower, upper in pairwise(boxes))


@pytest.mark.parametrize(("num_groups", "num_labels"), [(2, 2), (100, 100), (101, 0), (5000, 0)])
def test_labels_do_not_overlap_and_are_left_out_where_there_are_many(num_groups, num_labels):
    figure = plot_groups(tree_of(np.arange(num_groups)))
    axes = figure.axes[0]
    assert len(axes.get_yticklabels()) == num_labels
    assert not overlap(figure, axes)
    points = points_of(axes)
    assert len(points) == min(num_groups, 1000)
    np.testing.assert_allclose(points[[0, -1]], [[0, 0], [num_groups - 1, num_groups - 1]])
    assert ("1000 of 5000 groups" in axes.get_ylabel()) == (num_groups == 5000)


def test_long_labels_are_cut():
    tree = tree_of([1.0, 2.0])
    names = {"county": ["a" * 200, "b"]}
    tree["posterior"] = tree["posterior"].to_dataset().assign_coords(names)
    figure = plot_groups(tree)
    assert len(figure.axes[0].get_yticklabels()[0].get_text()) == 24


def test_shrinkage_has_sds_by_number_of_rows():
    axes = plot_shrinkage(tree_of([2.0, 0.0, 1.0], [3, 0, 1500])).axes[0]
    sd = np.sqrt(2 / 3)
    np.testing.assert_allclose(points_of(axes), [[3, sd], [0.5, sd], [1500, sd]])
    total = np.sqrt(np.var([2.0, 0.0, 1.0]) + sd**2)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), total)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[:2] == ["0", "1"]
    assert labels[-1] == "1\N{NARROW NO-BREAK SPACE}000"


def test_results_without_what_a_plot_needs_are_refused():
    plain = make_tree({"posterior": {"mu": np.zeros((1, 5))}}, {})
    for plot in (plot_groups, plot_shrinkage):
        with pytest.raises(ValueError, match="has no groups"):
            plot(plain)
    with pytest.raises(ValueError, match="numbers of rows"):
        plot_shrinkage(tree_of([1.0, 2.0]))
    with pytest.raises(ValueError, match="got 'mu'"):
        plot_groups(tree_of([1.0, 2.0]), ["mu"])
