"""Every Python block of the README and of docs/ runs, those of a file one after the other, and so do the commands of tutorials."""

import ast
import inspect
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from vcmc.cli.commands import main

import vcmc

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```python" in path.read_text()
]


SMALLER = {
    "1_000_000": "8_000",
    "--num-shards 20": "--num-shards 4",
}  # what takes a minute in a tutorial takes seconds here


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_code_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    text = path.read_text()
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    for kind, title, block in re.findall(r'```(\w+)(?: title="(.+)")?\n(.*?)```', text, re.DOTALL):
        if title:
            Path(title).write_text(block)
        elif kind == "python":
            exec(compile(block, str(path), "exec"), namespace)
        elif kind == "sh" and path.parent.name == "tutorials":
            for line in block.splitlines():
                command, *words = shlex.split(line)
                assert command == "vcmc"
                result = CliRunner().invoke(main, words)
                assert result.exit_code == 0, result.output


def test_architecture_names_every_file():
    page = (ROOT / "docs" / "architecture.md").read_text()
    folder = ROOT / "src" / "vcmc"
    for path in sorted(folder.iterdir()):
        if path.name.startswith("__") or path.suffix not in ("", ".py"):
            continue
        assert (path.name if path.suffix else f"{path.name}/") in page


def test_the_index_shows_what_the_readme_runs():
    (block,) = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), re.DOTALL)
    assert f"```python\n{block}```" in (ROOT / "README.md").read_text()


def test_messages_quoted_in_troubleshooting_are_those_of_the_sources():
    said = {
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
            assert any(part in text for text in said), f"nobody says {part!r}"


def test_the_reference_has_every_public_name():
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    for name in vcmc.__all__:
        what = getattr(vcmc, name)
        if inspect.ismodule(what):
            assert f"`vcmc.{name}`" in pages
        else:
            assert f"::: {what.__module__}.{what.__qualname__}\n" in pages, name
    for menu in ("aggregators", "combiners", "executors", "models", "samplers", "variational"):
        for name in getattr(vcmc, menu).__all__:
            pattern = rf"::: vcmc\.{menu}\S*\.{name}\n|`vcmc\.{menu}\.{name}`"
            assert re.search(pattern, pages), f"{menu}.{name}"


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    assert max(len(line) for line in lines) <= 120


def test_links_of_the_readme_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "README.md").read_text())
    assert len(links) > 10
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
