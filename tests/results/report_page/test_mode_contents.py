"""The modes on the report page."""

import numpy as np

from vcmc.results.report_page.mode_contents import mode_table
from vcmc.results.tree import make_tree


def test_every_mode_has_a_line():
    groups = {
        "draw_modes": {"mode": np.array([[0, 0, 1, 0]])},
        "modes": {"theta": np.array([[1.0, 2.0], [3.0, 4.0]])},
        "mode_weights": {"weight": np.array([0.75, 0.25]), "standard_error": np.full(2, 0.01)},
    }
    table = mode_table(make_tree(groups, {"mode_verdicts": ["good", "poor"]}))
    assert table.count("<tr>") == 3
    for text in ("0.250 ± 0.010", "poor", "theta = [3. 4.]"):
        assert text in table


def test_one_mode_has_no_table():
    assert mode_table(make_tree({"posterior": {"theta": np.zeros((1, 4))}}, {})) == ""
