"""The tables of `docs/paper.md`, made from what `vcmc reproduce` wrote.

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

GOAL = 1.5  # of the floor
ITERATIONS = 25  # of the paper's optimisation of the probit regression

Rows = list[dict[str, str]]


def filled(page: str, folder: Path) -> str:
    """A page with all of its tables made anew."""

    def table(found: re.Match[str]) -> str:
        name = found[1]
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


def _json(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def medians(name: str, folder: Path) -> str:
    """Median errors of every method and class, by number of shards."""
    entries = _read(folder, name)
    shards = list(
        dict.fromkeys(entry["num_shards"] for entry in entries if entry["method"] != FLOOR)
    )
    rows = []
    for functions in dict.fromkeys(entry["functions"] for entry in entries):
        inside = [entry for entry in entries if entry["functions"] == functions]
        (floor,) = (entry for entry in inside if entry["method"] == FLOOR)
        for method in dict.fromkeys(
            entry["method"] for entry in inside if entry["method"] != FLOOR
        ):
            errors = {entry["num_shards"]: entry for entry in inside if entry["method"] == method}
            rows.append([functions, method, *(_cell(errors.get(number)) for number in shards)])
        rows.append(
            [functions, "floor: two serial chains", *[_digits(floor["error"])] * len(shards)]
        )
    return _markdown(["functions", "method", *(f"K = {number}" for number in shards)], rows)


def _cell(entry: Mapping[str, str] | None) -> str:
    """An error; bold where the draws call themselves good."""
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


def _less(folder: Path, name: str, functions: str = "first", over: str = "Gaussian") -> str:
    """By how much the paper's method errs less than another, with the most shards."""
    own, other = (_error(folder, name, 100, method, functions) for method in ("VCMC", over))
    return f"{100 * (1 - own / other):.1f} % ({own:.2g} against {other:.2g})"


def claims(folder: Path) -> str:
    """The paper's headline claims beside what was measured."""
    both = "comembership"
    probit = [_error(folder, name, 100, "VCMC") for name in ("probit-300", "probit-300-partial")]
    wishart = [_error(folder, "wishart-100", 100, method) for method in ("uniform", "Gaussian")]
    mixture = [_error(folder, "mixture-1", 100, method, both) for method in ("uniform", "Gaussian")]
    rows = [
        [
            "probit, d = 300, K = 100: VCMC errs less than Gaussian averages",
            "39 %",
            _less(folder, "probit-300"),
        ],
        ["mixture, noise sd 1, K = 100: the same", "92 %", _less(folder, "mixture-1", both)],
        ["the same, every shard started by itself", "92 %", _less(folder, "mixture-1-apart", both)],
        [
            "probit, d = 300: partial posteriors give lower errors",
            "yes",
            f"{probit[1]:.2g} against {probit[0]:.2g} (VCMC, K = 100)",
        ],
        [
            "Wishart, d = 100: uniform and Gaussian averages are alike",
            "yes",
            f"{wishart[0]:.2g} and {wishart[1]:.2g} (K = 100)",
        ],
        [
            "mixture: uniform averages are better than Gaussian ones",
            "yes",
            f"{mixture[0]:.2g} and {mixture[1]:.2g} (K = 100)",
        ],
        [
            "probit, d = 300: seconds of optimisation, of serial sampling",
            "below 1 500, above 6 000",
            _seconds(folder),
        ],
    ]
    for problem in ("probit-300", "mixture-1"):
        said = f"{problem}: speed-up, sampling and combining (our default)"
        rows.append([said, "near K for K ≤ 25, K / 2 for 50 and 100", _shares(folder, problem)])
    rows += [
        [
            f"{name}: our default, in units of the floor, at worst (asked: {GOAL})",
            "",
            _worst(folder, name),
        ]
        for name in _figures(folder)
    ]
    rows += [
        [
            "draws that call themselves good: largest error, in units of the floor",
            "",
            _judged(folder, "good", max),
        ],
        [
            "draws that call themselves poor: smallest error, in units of the floor",
            "",
            _judged(folder, "poor", min),
        ],
    ]
    return _markdown(["claim", "paper", "here"], rows)


def _figures(folder: Path) -> list[str]:
    """The figures of errors by number of shards that were made."""
    return [
        name
        for name, experiment in EXPERIMENTS.items()
        if isinstance(experiment, ErrorsByShards) and (folder / f"{name}.csv").exists()
    ]


def _judged(folder: Path, verdict: str, pick: Callable[[list[float]], float]) -> str:
    """The largest or smallest error of all draws that say the same of themselves."""
    errors = [
        float(entry["of_floor"])
        for name in _figures(folder)
        for entry in _read(folder, name)
        if entry["verdict"] == verdict
    ]
    return f"{pick(errors):.2f}, of {len(errors)} medians"


def _seconds(folder: Path) -> str:
    timing = _json(folder, "timing")
    taken = [
        each["seconds"]
        for each in timing["seconds"]
        if each["problem"] == "probit-300"
        and each["method"] == "VCMC"
        and each["iterations"] == ITERATIONS
    ]
    serial = timing["problems"]["probit-300"]["serial"]["seconds_of_a_chain"]
    return f"{min(taken):.0f} to {max(taken):.0f} for {ITERATIONS} iterations, {serial:.0f}"


def _shares(folder: Path, problem: str) -> str:
    """Speed-ups of the default method as shares of the number of shards."""
    every = [
        each
        for each in _json(folder, "speedup")["seconds"]
        if each["problem"] == problem and each["method"] == "default"
    ]
    here, apart = (
        ", ".join(f"{each[key] / each['num_shards']:.2f}" for each in every)
        for key in ("speedup", "speedup_rows_apart")
    )
    numbers = ", ".join(str(each["num_shards"]) for each in every)
    return f"{here} times K for K = {numbers}; with a machine for each shard {apart}"


def _worst(folder: Path, name: str) -> str:
    worst = max(
        (entry for entry in _read(folder, name) if entry["method"] == "default"),
        key=lambda entry: float(entry["of_floor"]),
    )
    return f"{float(worst['of_floor']):.2f} ({worst['functions']}, K = {worst['num_shards']})"


def speedups(folder: Path) -> str:
    """Speed-ups as shares of the number of shards, with the seconds they are made of."""
    rows = [
        [
            each["problem"],
            str(each["num_shards"]),
            each["method"],
            f"{each['serial_seconds']:.1f}",
            f"{each['slowest_shard_seconds']:.2f}",
            f"{each['combine_seconds']:.2f}",
            f"{each['combine_seconds_rows_apart']:.2f}",
            f"{each['speedup']:.1f} = {each['speedup'] / each['num_shards']:.2f} K",
            f"{each['speedup_rows_apart']:.1f} = {each['speedup_rows_apart'] / each['num_shards']:.2f} K",
        ]
        for each in _json(folder, "speedup")["seconds"]
    ]
    head = [
        "problem",
        "K",
        "method",
        "serial, s",
        "slowest shard, s",
        "combining, s",
        "rows apart, s",
    ]
    return _markdown([*head, "speed-up", "rows apart"], rows)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(filled(document.read_text(), Path(sys.argv[2])))
