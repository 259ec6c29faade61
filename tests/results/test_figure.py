"""Empty figures, with and without matplotlib."""

import sys

import pytest

from vcmc.results.figure import new_figure


def test_a_figure_has_its_size_and_is_shown_in_notebooks():
    figure = new_figure(4, 2.5)
    assert figure.get_size_inches().tolist() == [4, 2.5]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'vcmc\[plots\]'"):
        new_figure(4, 2.5)
