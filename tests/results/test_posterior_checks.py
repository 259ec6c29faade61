"""The result of a posterior check: p-values, table, data frame, HTML."""

import numpy as np
import pytest

from vcmc.results.posterior_checks import Line, PosteriorCheck, num_decimals, share_text

pytest.importorskip("pandas")

REPLICATED = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], [5.0, 5.0, np.nan, 5.0]])
CHECK = PosteriorCheck(
    "y", (Line("mean"), Line("smallest"), Line("sd")), np.array([3.0, 0.0, 5.0]), REPLICATED
)


def test_p_values_are_shares_of_replicates():
    np.testing.assert_array_equal(CHECK.p_values, [0.5, 1.0, np.nan])
    # 2 min(1/2, 3/4) is 1; all replicates equal the data; an unknown statistic has no p-value
    np.testing.assert_array_equal(CHECK.two_sided, [1.0, 1.0, np.nan])
    below = PosteriorCheck("y", (Line("mean"),), np.array([0.5]), REPLICATED[:1])
    assert (below.p_values[0], below.two_sided[0]) == (1.0, 0.0)
    above = PosteriorCheck("y", (Line("mean"),), np.array([4.0]), REPLICATED[:1])
    assert (above.p_values[0], above.two_sided[0]) == (0.25, 0.5)


def test_extreme_statistics_are_named():
    assert CHECK.extreme == []
    assert "The data are like replicated data (3 statistics of 'y', 4 replicates)." in str(CHECK)
    lines = tuple(Line("mean", label) for label in "ab")
    check = PosteriorCheck("y", lines, np.array([2.0, 9.0]), REPLICATED[[0, 0]], "county")
    assert check.extreme == ["mean[b]"]
    assert "unlike replicated data in mean[b]: two-sided p below 0.5 for 1 of 2" in str(check)


def test_the_frame_has_a_line_for_each_statistic():
    frame = CHECK.to_frame()
    assert list(frame.index) == ["mean", "smallest", "sd"]
    assert list(frame.columns) == ["observed", "mean", "sd", "q05", "q95", "p_value", "two_sided"]
    line = frame.loc["mean"]
    assert (line["observed"], line["mean"], line["q05"]) == (3.0, 2.5, 1.15)
    check = PosteriorCheck("y", (Line("mean", "a"),), np.ones(1), REPLICATED[:1], "county")
    assert check.to_frame().index.names == ["statistic", "county"]
    assert check.to_frame().loc[("mean", "a"), "p_value"] == 1.0


def test_tables_show_the_decimals_that_matter():
    text = str(CHECK).splitlines()
    assert text[1].split() == ["mean", "3.0", "2.5", "1.1", "3.8", "0.50", "1.00"]
    assert text[3].split()[-1] == "–"
    assert num_decimals(0.0234, 5.0) == 3
    assert num_decimals(0.0, 0.0) == 0
    assert [share_text(share, 500) for share in (0.0, 0.5, np.nan)] == ["< 0.002", "0.500", "–"]
    unlike = PosteriorCheck("y", (Line("mean"),), np.array([9.0]), np.zeros((1, 500)))
    assert str(unlike).splitlines()[1].endswith("< 0.002      < 0.004")


def test_notebooks_show_html():
    check = PosteriorCheck("y", (Line("<b>"),), np.ones(1), np.ones((1, 4)))
    page = check._repr_html_()
    assert "<table>" in page
    assert "&lt;b&gt;" in page
    many = PosteriorCheck("y", (Line("a"),) * 70, np.ones(70), np.ones((70, 4)))
    assert "… and 10 more: to_frame() has all." in str(many)
    assert "… and 10 more" in many._repr_html_()
    assert many._repr_html_().count("<tr>") == 61


@pytest.mark.parametrize("by", ["", "county"])
def test_the_figure_has_a_panel_for_each_statistic(by):
    pytest.importorskip("matplotlib")
    lines = [Line(name, group) for name in ("mean", "sd") for group in ("ab" if by else [""])]
    replicated = np.random.default_rng(0).normal(size=(len(lines), 50))
    check = PosteriorCheck("y", lines, np.full(len(lines), 0.25), replicated, by)
    panels = [axes for axes in check.plot().axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == ["mean", "sd"]
    if by:
        assert [label.get_text() for label in panels[0].get_yticklabels()] == ["a", "b"]
        assert panels[0].lines[0].get_xdata().tolist() == [0.25, 0.25]
    else:
        assert panels[0].lines[0].get_xdata() == [0.25, 0.25]
        assert sum(patch.get_height() for patch in panels[0].patches) == 50
