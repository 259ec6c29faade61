"""The code blocks of the README and of docs/ run, and the pages agree with the code.

The Python blocks of a page run one after the other, and so do the commands of tutorials.
"""

import ast
import inspect
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import vcmc
from vcmc.cli.commands import main

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```python" in path.read_text()
}
# The first pages that a user sees; the others are slow.
FIRST_PAGES = ("README.md", "docs/quickstart.md")
NEEDED = {"docs/bambi.md": "bambi"}  # packages that not every environment has
BLOCK = re.compile(r'```(\w+)(?: title="(.+)")?\n(.*?)```', re.DOTALL)
# Tutorials that take a minute take seconds with these replacements.
SMALLER = {
    "1_000_000": "8_000",
    "--num-shards 20": "--num-shards 4",
    "NUM_PLANES = 10_000": "NUM_PLANES = 60",
    "MONTHS = range(1, 12)": "MONTHS = range(1, 4)",
    "EVERY = 1 ": "EVERY = 20 ",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [pytest.param(name, marks=[] if name in FIRST_PAGES else pytest.mark.slow) for name in PAGES],
)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    if page in NEEDED:
        pytest.importorskip(NEEDED[page])
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    path = PAGES[page]
    text = path.read_text()
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    for match in BLOCK.finditer(text):
        language, title, block = match.groups()
        if title:
            Path(title).write_text(block)
        elif language == "python":
            lines_above = text.count("\n", 0, match.start(3))  # so that errors name the page's line
            exec(compile("\n" * lines_above + block, str(path), "exec"), namespace)
        elif language == "sh" and path.parent.name == "tutorials":
            run_commands(block)


def test_the_first_pages_have_code():
    assert set(FIRST_PAGES) <= set(PAGES)


def run_commands(block: str) -> None:
    """Run the commands of a block, which must all be `vcmc` commands."""
    for line in block.splitlines():
        command, *arguments = shlex.split(line)
        assert command == "vcmc"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output


def test_architecture_names_every_file():
    page = (ROOT / "docs" / "architecture.md").read_text()
    folder = ROOT / "src" / "vcmc"
    for path in sorted(folder.iterdir()):
        if path.name.startswith("__") or path.suffix not in ("", ".py"):
            continue
        assert (path.name if path.suffix else f"{path.name}/") in page


def test_the_index_shows_the_example_of_the_readme():
    (block,) = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    assert f"```python\n{block}```" in (ROOT / "README.md").read_text()


def test_messages_quoted_in_troubleshooting_are_those_of_the_sources():
    literals = {
        " ".join(node.value.split())
        for path in (ROOT / "src" / "vcmc").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = re.findall(r"```text\n(.*?)\n```", page, re.DOTALL)
    assert len(quoted) > 20
    for message in quoted:
        for part in filter(None, (part.strip() for part in message.split("…"))):
            assert any(part in text for text in literals), f"no string in src has {part!r}"


def test_the_reference_has_every_public_name():
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    for name in vcmc.__all__:
        value = getattr(vcmc, name)
        if inspect.ismodule(value):
            assert f"`vcmc.{name}`" in pages
        else:
            assert f"::: {value.__module__}.{value.__qualname__}\n" in pages, name
    for menu in ("aggregators", "combiners", "executors", "models", "samplers", "variational"):
        for name in getattr(vcmc, menu).__all__:
            module = getattr(getattr(getattr(vcmc, menu), name), "__module__", f"vcmc.{menu}")
            pattern = rf"::: (vcmc\.{menu}\S*|{module})\.{name}\n|`vcmc\.{menu}\.{name}`"
            assert re.search(pattern, pages), f"{menu}.{name}"


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert max(len(line) for line in lines) <= 120


def test_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
