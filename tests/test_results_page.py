"""RESULTS.md, the README's figures and benchmarks/results.json say the same."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARENA = ROOT / "benchmarks" / "arena"
DOCUMENTS = ("README.md", "benchmarks/README.md", "benchmarks/RESULTS.md")
SOURCES = ("benchmarks/results.json", "benchmarks/arena/notes.md")
# Answers of known quality, stored as arena.py stores them: problem, groups, method, error of
# means in sds, factor of sds, seconds, verdict. Draws are exact quantiles of a normal.
MADE_UP = """
import json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
import arena, answer, problems, results, truth
from scipy.stats import norm

folder, root = Path(sys.argv[1]), Path(sys.argv[2])
base = problems.small()
draws = norm.ppf((np.arange(1000) + 0.5) / 1000)[:, None] * np.ones(5)
for name, groups, method, error, factor, seconds, verdict in json.loads(sys.argv[3]):
    problem = replace(base, name=name)
    path = answer.path_of(folder, name, "reference")
    np.savez(path.with_suffix(".npz"), beta=truth.summary_of(draws))
    shared = {"problem": name, "num_rows": 30_000, "num_groups": groups}
    shared["ended"] = "2027-01-01 10:00"
    record = {"method": "reference", "origin": "known", "seconds": 1.0, "errors": [0.001] * 3}
    path.with_suffix(".json").write_text(json.dumps(record | shared))
    path = answer.path_of(folder, name, method)
    stages = {"start": seconds / 2} if verdict else {}
    made = answer.Answer(
        {"beta": factor * draws + error}, seconds, num_shards=4, verdict=verdict, stages=stages
    )
    arena._store(path, problem, method, made)
    record = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(record | shared | {"failure": ""}))
results.write_all(folder, root)
"""
ANSWERS = [
    ("logistic", 0, "vcmc", 0.01, 1.0, 10.0, "good"),
    ("logistic", 0, "NumPyro NUTS", 0.02, 1.0, 45.0, ""),
    ("logistic", 0, "Pathfinder", 0.5, 1.0, 3.0, ""),  # it has no column
    ("mixture", 0, "vcmc", 0.05, 1.2, 20.0, "good"),  # sds are off
    ("mixture", 0, "vcmc, refined", 0.01, 1.0, 25.0, "poor"),  # right
    ("mixture", 0, "NumPyro NUTS", 0.02, 1.0, 10.0, ""),
    ("mixture", 0, "Laplace", 0.3, 1.0, 4.0, ""),
    ("small", 0, "vcmc", 0.4, 1.0, 2.0, "doubtful"),  # never within 0.1 sd
    ("small", 0, "NumPyro NUTS", 0.02, 1.0, 3.0, ""),
    ("items", 2_500, "vcmc", 0.01, 1.0, 6.0, "good"),
    ("items", 2_500, "NumPyro NUTS", 0.02, 1.0, 30.0, ""),
    ("items", 2_500, "NumPyro NUTS, centred", 0.04, 1.0, 24.0, ""),
    ("items", 2_500, "a new one", 0.03, 1.0, 60.0, ""),  # it has no column
]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder of the comparison's modules."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ARENA, check=False)


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return run(ARENA / "results.py", "--check", "--root", root)


@pytest.fixture
def copy(tmp_path):
    """Return a folder with copies of the documents and of what they are made from."""
    return copied(tmp_path)


def copied(folder: Path) -> Path:
    for name in (*DOCUMENTS, *SOURCES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """Return a folder with documents that are made from answers of known quality."""
    root = copied(tmp_path_factory.mktemp("root"))
    answers = tmp_path_factory.mktemp("answers")
    result = run("-c", MADE_UP, answers, root, json.dumps(ANSWERS))
    assert result.returncode == 0, result.stderr
    return root


@pytest.fixture
def page(made_up):
    return (made_up / "benchmarks" / "RESULTS.md").read_text()


def row(text: str, label: str) -> list[str]:
    """Return the cells of the first row of a table that begins with a label."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
    return line.strip("| ").split(" | ")[1:]


def test_documents_are_those_of_the_results():
    result = check(ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_changed_figure_is_found(copy, document):
    path = copy / document
    begin = "<!--results:" if "README" in document else "seconds until"
    before, found, after = path.read_text().partition(begin)
    changed = re.sub(r"\d", lambda match: str((int(match[0]) + 1) % 10), after, count=1)
    assert changed != after
    path.write_text(before + found + changed)
    result = check(copy)
    assert result.returncode == 1
    assert result.stderr.startswith(f"not what results.json says: {document}.")


def test_changed_results_change_all_documents(copy):
    path = copy / "benchmarks" / "results.json"
    results = json.loads(path.read_text())
    results["problems"]["logistic"]["methods"]["NumPyro NUTS"]["to_goal"] *= 2
    path.write_text(json.dumps(results))
    result = check(copy)
    assert result.returncode == 1
    assert all(document in result.stderr for document in DOCUMENTS)


def test_documents_that_were_just_written_agree(made_up):
    result = check(made_up)
    assert result.returncode == 0, result.stderr
    assert (made_up / "benchmarks" / "arena" / "arena.png").stat().st_size > 10_000


def test_the_table_has_seconds_and_errors_with_the_best_in_bold(page):
    assert row(page, "logistic, 30,000 rows") == [
        "**10.0 / 0.010**",
        "45.0 / 0.020",
        "–",
    ]
    assert row(page, "mixture, 30,000 rows") == [
        "20.0 / 0.050",
        "**10.0 / 0.020**",
        "not in 4.0 / 0.300",
    ]
    assert row(page, "small, 30,000 rows")[0] == "not in 2.0 / 0.400"


def test_hierarchical_problems_have_a_table_of_their_own(page):
    assert row(page, "items, 30,000 rows, 2,500 groups") == [
        "**6.0 / 0.010**",
        "30.0 / 0.020",
        "24.0 / 0.040",
    ]


def test_the_verdict_is_computed(page):
    speed, nuts, errors, calls, losses = page.splitlines()[2:7]
    assert "on 1 of 3 problems with 20,000 rows or more; not on mixture (2.0 times)" in speed
    assert "small (never)" in speed
    assert "With 2,000 groups or more it is the first by a factor of 3 on 1 of 1" in speed
    assert "items 4.0)." in speed
    assert "sooner on 2 of 4 problems, at best 4.5 times as fast (logistic)" in nuts
    assert "at most 0.400 sd (small)" in errors
    assert "least of all contestants' on 2 of 4" in errors
    assert "Of 5 runs of vcmc, 3 call their result good, 1 doubtful and 1 poor." in calls
    assert "called good: mixture, vcmc." in calls
    assert "Right and called poor: mixture, vcmc (refined)." in calls
    assert "mixture (NumPyro NUTS 10.0, vcmc 20.0 s)" in losses
    assert "small (NumPyro NUTS 3.0, vcmc never)" in losses


def test_wins_of_others_are_listed(page):
    wins = page.partition("## Where others win")[2].partition("## Time")[0]
    assert row(wins, "mixture")[:3] == [
        "NumPyro NUTS 10.0; vcmc 20.0",
        "NumPyro NUTS 0.020; vcmc 0.050",
        "Laplace 0.0, NumPyro NUTS 0.0; vcmc 20.0",
    ]
    assert "On logistic and items no other method is sooner or closer." in wins


def test_the_readme_shows_the_same_cells(made_up):
    readme = (made_up / "README.md").read_text()
    assert "takes 10 s with its error estimate, full-data NUTS 45 s to know" in readme
    assert row(readme, "**vcmc**") == ["**10.0 / 0.010**", "20.0 / 0.050", "– / 0.400"]
    assert row(readme, "NumPyro NUTS")[1] == "**10.0 / 0.020**"
    assert "NUTS or nutpie was within 0.1 sd before vcmc" in " ".join(readme.split())


def test_the_readme_has_short_lines_whatever_the_results(copy):
    """Five problems and seven methods, with the longest cells that there are."""
    results = json.loads((copy / "benchmarks" / "results.json").read_text())
    problems = results["problems"]
    problems |= {"flights": problems["logistic"], "planes": problems["logistic"]}
    for of_problem in problems.values():
        for of_method in of_problem["methods"].values():
            of_method |= {"mean": 0.012, "to_goal": 12.3}  # all are the best
    rewrite(copy, results)
    lines = (copy / "README.md").read_text().splitlines()
    assert any("flights" in line and "planes" in line for line in lines)
    assert max(map(len, lines)) <= 120


def test_the_larger_error_of_globals_and_locals_counts(made_up, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(made_up, root)
    results = json.loads((root / "benchmarks" / "results.json").read_text())
    ours = results["problems"]["items"]["methods"]["vcmc"]
    ours |= {"local_mean": 0.05, "local_worst": 0.25, "local_sd": 0.01}
    rewrite(root, results)
    page = (root / "benchmarks" / "RESULTS.md").read_text()
    assert row(page, "items, 30,000 rows, 2,500 groups")[0] == "**6.0** / 0.050"
    assert "called good: mixture, vcmc and items, vcmc." in page
    assert "| locals: mean error, sd |" in page.partition("### items")[2]


def rewrite(root: Path, results: dict) -> None:
    """Write the documents of other results."""
    (root / "benchmarks" / "results.json").write_text(json.dumps(results))
    result = run(ARENA / "results.py", "--root", root)
    assert result.returncode == 0, result.stderr


def test_methods_without_a_column_are_in_the_details(page):
    assert "| a new one | 0.030 |" in page.partition("### items")[2]
    assert "| Pathfinder | 0.500 |" in page.partition("### logistic")[2]
