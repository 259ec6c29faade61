"""The demo's table and summary, from draws that are known. `test_commands.py` runs it."""

import io

import numpy as np
import pytest
from rich.console import Console

from vcmc.cli import demo
from vcmc.cli.demo import NAMES, Answer, _errors, _plot, _summary, _table


@pytest.fixture
def answers():
    draws = np.random.default_rng(0).normal(size=(1000, 5))
    draws = (draws - draws.mean(axis=0)) / draws.std(axis=0)
    return {
        "full-data NUTS": Answer(draws, 10.0),
        "consensus": Answer(draws + 1.5, 2.0),
        "the paper's": Answer(draws - 0.5, 3.0),
        "vcmc": Answer(draws + 0.01, 2.5),
    }


def test_errors_are_in_posterior_sds(answers):
    errors = _errors(answers["consensus"], answers["full-data NUTS"])
    np.testing.assert_allclose(errors, 1.5, rtol=1e-10)


def test_the_table_has_every_coefficient_and_the_largest_error(answers):
    console = Console(width=120, file=io.StringIO())
    console.print(_table(answers))
    text = console.file.getvalue()
    assert all(name in text for name in NAMES)
    assert "1.50 sd" in text
    assert "0.01 sd" in text


def test_the_summary_names_the_closest_method(answers):
    assert "vcmc" in _summary(answers)
    assert "0.01" in _summary(answers)


def test_the_picture_is_saved(answers, tmp_path):
    shards = np.random.default_rng(1).normal(size=(3, 200, 5))
    assert "demo.png" in _plot(answers, shards, tmp_path)
    assert (tmp_path / "demo.png").stat().st_size > 20_000
    demo._check_picture(tmp_path / "demo.png")  # another demo may overwrite it


def test_a_picture_of_the_users_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "rare_covariate", None)  # nothing is computed
    (tmp_path / "demo.png").write_bytes(b"a picture of the user's")
    with pytest.raises(FileExistsError, match=r"demo.png exists and was not written by vcmc"):
        demo.run_demo(tmp_path, 0, Console())
    assert (tmp_path / "demo.png").read_bytes() == b"a picture of the user's"
