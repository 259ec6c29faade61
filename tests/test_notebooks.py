"""What a notebook shows: progress while `infer` runs, and results as HTML."""

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

SETUP = """
import sys
sys.modules["ipywidgets"] = None  # as if it were not installed
import vcmc
model = vcmc.models.Probit(2)
rows = model.simulate(seed=0, num_rows=2000).rows
combiners = [vcmc.combiners.Consensus(), vcmc.combiners.Average()]
"""
CELLS = [
    SETUP,
    "tree = vcmc.infer(model, rows, num_shards=2, num_draws=400)",
    "tree",
    "vcmc.diagnose(tree)",
    "vcmc.summary(tree)",
    "vcmc.compare(model, rows, combiners=combiners, num_shards=2, progress=False)",
]


def executed(texts):
    """Return the cells of a notebook, after it was executed by a kernel of its own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in texts])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return notebook["cells"]


def shown(cell, kind):
    """Return what a cell shows: HTML or text."""
    return "".join(output.get("data", {}).get(kind, "") for output in cell["outputs"])


@pytest.fixture(scope="module")
def cells():
    return executed(CELLS)


STAGES = ("prepare", "sample 2 shards", "combine", "diagnose")


@pytest.mark.slow
def test_without_widgets_progress_is_lines_and_there_are_no_warnings(cells):
    lines = "".join(output.get("text", "") for output in cells[1]["outputs"])
    for stage in STAGES:
        assert f"{stage}: done in" in lines
    assert "arning" not in lines
    assert not any(output.get("text") for cell in cells[2:] for output in cell["outputs"])


@pytest.mark.slow
def test_with_widgets_progress_is_bars():
    pytest.importorskip("ipywidgets")
    texts = [text.replace('sys.modules["ipywidgets"] = None', "") for text in CELLS[:2]]
    (_, cell) = executed(texts)
    assert "Output()" in shown(cell, "text/plain")
    assert not any(output.get("name") == "stderr" for output in cell["outputs"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words"),
    [(2, "xr-"), (3, "beta[1]"), (4, "beta[1]"), (5, "Consensus")],
    ids=["tree", "diagnosis", "summary", "comparison"],
)
def test_results_are_shown_as_html(cells, number, words):
    assert words in shown(cells[number], "text/html")
