"""The tables of `docs/paper.md` match the committed results."""

import json
from pathlib import Path

import pytest

from vcmc.paper import EXPERIMENTS
from vcmc.paper.page import fill_tables

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_matches_the_results():
    page = (DOCS / "paper.md").read_text()
    assert fill_tables(page, DOCS / "paper") == page
    # timing has a figure only, and there is a table of claims
    assert page.count("<!-- table:") == len(EXPERIMENTS)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_figure_was_made_at_the_papers_size(name):
    settings = json.loads((DOCS / "paper" / f"{name}.json").read_text())
    assert settings["experiment"] == name
    assert settings["size"] == "paper"
    assert settings["date"]
    assert settings["versions"]["jax"]
    assert settings["machine"]["cores"] >= 1
    for end in ("csv", "png", "svg"):
        assert (DOCS / "paper" / f"{name}.{end}").stat().st_size > 100
    assert f"paper/{name}.png" in (DOCS / "paper.md").read_text()


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if name not in ("timing", "speedup")]
)
def test_serial_chains_are_sound(name):
    serial = json.loads((DOCS / "paper" / f"{name}.json").read_text())["serial"]
    assert serial["largest_rhat"] < 1.01
    for above in serial.get("log_density_above_that_of_the_truth", []):
        assert abs(above) < 64  # nats: one per coordinate
