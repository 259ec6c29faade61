"""The tables of `docs/paper.md`, from the files that `vcmc reproduce` wrote.

Run: python -m vcmc.paper.page docs/paper.md docs/paper
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import EXPERIMENTS
from .errors_by_shards import ErrorsByShards
from .trial import FLOOR

GOAL_FLOORS = 1.5  # error of the default that was aimed at, in units of the floor
MOST_SHARDS = 100  # the largest number of shards in the paper
ITERATIONS = 25  # of the paper's optimization of the probit regression

Rows = list[dict[str, str]]


def fill_tables(page: str, folder: Path) -> str:
    """Return a page with all of its tables written anew."""

    def table(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- table: {name} -->\n{_table(name, folder)}\n<!-- end -->"

    return re.sub(r"<!-- table: (\S+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)


def _table(name: str, folder: Path) -> str:
    if name == "claims":
        return claims(folder)
    if name == "speedup":
        return speedups(folder)
    return medians(name, folder)


def _read(folder: Path, name: str) -> Rows:
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def _read_json(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def medians(name: str, folder: Path) -> str:
    """Return median errors of every method and class, by number of shards."""
    entries = _read(folder, name)
    shards = list(
        dict.fromkeys(entry["num_shards"] for entry in entries if entry["method"] != FLOOR)
    )
    rows = []
    for functions in dict.fromkeys(entry["functions"] for entry in entries):
        of_class = [entry for entry in entries if entry["functions"] == functions]
        (floor,) = (entry for entry in of_class if entry["method"] == FLOOR)
        for method in dict.fromkeys(
            entry["method"] for entry in of_class if entry["method"] != FLOOR
        ):
            errors = {entry["num_shards"]: entry for entry in of_class if entry["method"] == method}
            rows.append([functions, method, *(_cell(errors.get(number)) for number in shards)])
        rows.append(
            [functions, "floor: two serial chains", *[_digits(floor["error"])] * len(shards)]
        )
    return _markdown(["functions", "method", *(f"K = {number}" for number in shards)], rows)


def _cell(entry: Mapping[str, str] | None) -> str:
    """Format an error, bold where the verdict is good."""
    if entry is None:
        return "–"
    text = _digits(entry["error"])
    return f"**{text}**" if entry["verdict"] == "good" else text


def _digits(text: str) -> str:
    return f"{float(text):.2g}"


def _error(
    folder: Path, name: str, num_shards: int, method: str, functions: str = "first"
) -> float:
    (entry,) = (
        entry
        for entry in _read(folder, name)
        if (entry["num_shards"], entry["method"], entry["functions"])
        == (str(num_shards), method, functions)
    )
    return float(entry["error"])


def _reduction(folder: Path, name: str, functions: str = "first") -> str:
    """Return by how much the paper's method reduces the error of Gaussian averages."""
    own, base = (
        _error(folder, name, MOST_SHARDS, method, functions) for method in ("VCMC", "Gaussian")
    )
    return f"{100 * (1 - own / base):.1f} % ({own:.2g} against {base:.2g})"


def claims(folder: Path) -> str:
    """Return the paper's claims beside our figures."""
    rows = [*_error_claims(folder), *_speed_claims(folder), *_default_rows(folder)]
    return _markdown(["claim", "paper", "here"], rows)


def _error_claims(folder: Path) -> list[list[str]]:
    functions = "comembership"
    averages = ("uniform", "Gaussian")
    probit = [
        _error(folder, name, MOST_SHARDS, "VCMC") for name in ("probit-300", "probit-300-partial")
    ]
    wishart = [_error(folder, "wishart-100", MOST_SHARDS, method) for method in averages]
    mixture = [_error(folder, "mixture-1", MOST_SHARDS, method, functions) for method in averages]
    most = f"K = {MOST_SHARDS}"
    return [
        [
            f"probit, d = 300, {most}: VCMC reduces the error of Gaussian averages by",
            "39 %",
            _reduction(folder, "probit-300"),
        ],
        [
            f"mixture, noise sd 1, {most}: the same",
            "92 %",
            _reduction(folder, "mixture-1", functions),
        ],
        [
            "the same, with separately started shards",
            "92 %",
            _reduction(folder, "mixture-1-apart", functions),
        ],
        [
            "probit, d = 300: partial posteriors give lower errors",
            "yes",
            f"{probit[1]:.2g} against {probit[0]:.2g} (VCMC, {most})",
        ],
        [
            "Wishart, d = 100: uniform and Gaussian averages are alike",
            "yes",
            f"{wishart[0]:.2g} and {wishart[1]:.2g} ({most})",
        ],
        [
            "mixture: uniform averages are better than Gaussian ones",
            "yes",
            f"{mixture[0]:.2g} and {mixture[1]:.2g} ({most})",
        ],
    ]


def _speed_claims(folder: Path) -> list[list[str]]:
    optimization = [
        "probit, d = 300: seconds of optimisation, of serial sampling",
        "below 1 500, above 6 000",
        _seconds(folder),
    ]
    speedups = [
        [
            f"{problem}: speed-up, sampling and combining (our default)",
            "near K for K ≤ 25, K / 2 for 50 and 100",
            _shares(folder, problem),
        ]
        for problem in ("probit-300", "mixture-1")
    ]
    return [optimization, *speedups]


def _default_rows(folder: Path) -> list[list[str]]:
    """Return the errors of our default and of all methods by verdict, in units of the floor."""
    rows = [
        [
            f"{name}: largest error of our default, in units of the floor (goal: {GOAL_FLOORS})",
            "",
            _largest(folder, name),
        ]
        for name in _figures(folder)
    ]
    for verdict, extreme, pick in (("good", "largest", max), ("poor", "smallest", min)):
        claim = f'verdict "{verdict}": {extreme} error, in units of the floor'
        rows.append([claim, "", _extreme_error(folder, verdict, pick)])
    return rows


def _figures(folder: Path) -> list[str]:
    """Return the experiments of errors by number of shards that have results."""
    return [
        name
        for name, experiment in EXPERIMENTS.items()
        if isinstance(experiment, ErrorsByShards) and (folder / f"{name}.csv").exists()
    ]


def _extreme_error(folder: Path, verdict: str, pick: Callable[[list[float]], float]) -> str:
    """Return the largest or smallest error of all results with a verdict."""
    errors = [
        float(entry["of_floor"])
        for name in _figures(folder)
        for entry in _read(folder, name)
        if entry["verdict"] == verdict
    ]
    return f"{pick(errors):.2f}, of {len(errors)} medians"


def _seconds(folder: Path) -> str:
    timing = _read_json(folder, "timing")
    seconds = [
        entry["seconds"]
        for entry in timing["seconds"]
        if entry["problem"] == "probit-300"
        and entry["method"] == "VCMC"
        and entry["iterations"] == ITERATIONS
    ]
    serial = timing["problems"]["probit-300"]["serial"]["seconds_of_a_chain"]
    return f"{min(seconds):.0f} to {max(seconds):.0f} for {ITERATIONS} iterations, {serial:.0f}"


def _shares(folder: Path, problem: str) -> str:
    """Return speed-ups of the default as fractions of the number of shards."""
    entries = [
        entry
        for entry in _read_json(folder, "speedup")["seconds"]
        if entry["problem"] == problem and entry["method"] == "default"
    ]
    one_machine, machines = (
        ", ".join(f"{entry[key] / entry['num_shards']:.2f}" for entry in entries)
        for key in ("speedup", "speedup_rows_apart")
    )
    numbers = ", ".join(str(entry["num_shards"]) for entry in entries)
    return f"{one_machine} times K for K = {numbers}; with one machine per shard {machines}"


def _largest(folder: Path, name: str) -> str:
    largest = max(
        (entry for entry in _read(folder, name) if entry["method"] == "default"),
        key=lambda entry: float(entry["of_floor"]),
    )
    where = f"{largest['functions']}, K = {largest['num_shards']}"
    return f"{float(largest['of_floor']):.2f} ({where})"


def speedups(folder: Path) -> str:
    """Return speed-ups, also as fractions of the number of shards, and their seconds."""
    rows = [
        [
            entry["problem"],
            str(entry["num_shards"]),
            entry["method"],
            f"{entry['serial_seconds']:.1f}",
            f"{entry['slowest_shard_seconds']:.2f}",
            f"{entry['combine_seconds']:.2f}",
            f"{entry['combine_seconds_rows_apart']:.2f}",
            *(
                f"{entry[key]:.1f} = {entry[key] / entry['num_shards']:.2f} K"
                for key in ("speedup", "speedup_rows_apart")
            ),
        ]
        for entry in _read_json(folder, "speedup")["seconds"]
    ]
    head = ["problem", "K", "method", "serial, s", "slowest shard, s", "combining, s"]
    return _markdown([*head, "one machine per shard, s", "speed-up", "one machine per shard"], rows)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(fill_tables(document.read_text(), Path(sys.argv[2])))
