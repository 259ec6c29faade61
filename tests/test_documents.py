"""Every Python block of the README and of docs/ runs, those of a file one after the other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if "```python" in path.read_text()
]


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_code_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        exec(compile(block, str(path), "exec"), namespace)


def test_architecture_names_every_file():
    page = (ROOT / "docs" / "architecture.md").read_text()
    folder = ROOT / "src" / "vcmc"
    for path in sorted(folder.iterdir()):
        if path.name.startswith("__") or path.suffix not in ("", ".py"):
            continue
        assert (path.name if path.suffix else f"{path.name}/") in page
