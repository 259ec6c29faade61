"""Figures have the panels and lines that their entries ask for."""

from types import SimpleNamespace

import pytest

from vcmc.paper.pictures import MAX_ERROR, draw_errors
from vcmc.paper.trial import FLOOR


def entry(method, num_shards, error, functions="first"):
    return SimpleNamespace(
        method=method,
        num_shards=num_shards,
        error=error,
        functions=functions,
        difference=error - 0.1,
        difference_lower=error - 0.2,
        difference_upper=error + 0.2,
    )


@pytest.fixture
def entries():
    return [
        entry(FLOOR, 1, 0.01),
        *(
            entry(method, count, error)
            for count in (2, 4)
            for method, error in (("Gaussian", 0.1), ("VCMC", 50.0), ("default", 0.02))
        ),
    ]


def test_a_figure_has_errors_and_differences_of_every_class(entries):
    figure = draw_errors("title", entries, [], "index")
    upper, lower = figure.axes
    lines = {line.get_label(): line for line in upper.lines}
    assert {"Gaussian", "VCMC", "default"} <= set(lines)
    assert list(lines["default"].get_ydata()) == [0.02, 0.02]
    assert max(lines["VCMC"].get_ydata()) == MAX_ERROR  # larger errors are drawn at the limit
    assert "quartiles" in lower.get_ylabel()


def test_two_classes_have_two_columns(entries):
    second = [SimpleNamespace(**{**vars(each), "functions": "pure second"}) for each in entries]
    figure = draw_errors("title", entries + second, [], "index")
    assert len(figure.axes) == 4
