"""The layout: test files mirror the source, the root stays small, and no name means two things."""

import ast
import inspect
import tomllib
from pathlib import Path

import pytest

import vcmc

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "vcmc", ROOT / "tests"
MAX_FILES, MAX_FOLDERS, MAX_LAYERS = 9, 15, 9
# Tests of the whole package, or of a whole folder.
WITHOUT_SOURCE = {
    "test_against_nuts.py",
    "test_calibration.py",
    "test_closed_forms.py",
    "test_documents.py",
    "test_kills.py",
    "test_layout.py",
    "test_notebooks.py",
    "test_laws.py",
    "test_odd_posteriors.py",
    "test_package.py",
    "test_hidden_faults.py",
    "test_planted_failures.py",
    "test_published.py",
    "test_results_page.py",
}
FOLDERS = [path for path in sorted(SOURCE.iterdir()) if (path / "__init__.py").exists()]


def mirror(module: Path) -> Path:
    """Return the path of the test file that belongs to a module, relative to tests/."""
    path = module.relative_to(SOURCE)
    return path.with_name(f"test_{path.name}")


def needs_mirror(module: Path) -> bool:
    """Return whether a module must have a test file of its own.

    The laws of a menu test its interface, and the paper's figures share their tests.
    """
    if module.name == "base.py":
        return not (TESTS / mirror(module)).with_name("test_laws.py").exists()
    is_figure = module.parent.name == "paper" and "\nEXPERIMENT = " in module.read_text()
    return module.name != "__init__.py" and not is_figure


def test_every_module_has_a_test_file():
    modules = [module for module in sorted(SOURCE.rglob("*.py")) if needs_mirror(module)]
    missing = [
        f"{module.relative_to(ROOT)} has no tests/{mirror(module)}"
        for module in modules
        if not (TESTS / mirror(module)).exists()
    ]
    assert not missing, "\n".join(missing)


def test_every_test_file_has_a_module():
    mirrors = {mirror(module) for module in SOURCE.rglob("*.py")}
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    stray = sorted(str(path) for path in files - mirrors if path.name not in WITHOUT_SOURCE)
    assert not stray, f"no module of src/vcmc belongs to: {', '.join(stray)}"


def test_the_root_has_few_files_and_folders():
    assert len(list(SOURCE.glob("*.py"))) <= MAX_FILES
    assert len(FOLDERS) <= MAX_FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_folder_says_what_lives_in_it_and_who_imports_it(folder):
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    lines = [line for line in docstring.splitlines() if line.strip()]
    assert len(lines) >= 2, f"{folder.name}/__init__.py needs a docstring of two lines or more"


def test_there_are_few_layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert len(layers) <= MAX_LAYERS


def test_no_module_is_called_like_a_public_function():
    functions = {name for name in vcmc.__all__ if inspect.isfunction(getattr(vcmc, name))}
    modules = {path.stem for path in SOURCE.rglob("*.py")} | {folder.name for folder in FOLDERS}
    assert not functions & modules


def test_modules_with_checked_shapes_exist(pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    paths = {name: SOURCE / name.replace(".", "/") for name in conftest.CHECKED}
    unknown = [
        name
        for name, path in paths.items()
        if not (path.is_dir() or path.with_suffix(".py").exists())
    ]
    assert not unknown, f"tests/conftest.py asks to check {', '.join(unknown)}"
