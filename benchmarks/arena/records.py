"""What a run of the comparison leaves: its setting and the score of every answer, as JSON.

`benchmarks/results.json` holds all that RESULTS.md and the README say. Both are written from it
alone, so that they can be checked without running anything. This module imports no method.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

GOAL_SD = 0.1  # median error of means, in posterior sds, that a method is timed to

# A chain is stopped when its median error has been below the goal for as long as it took to get
# there, is below this one, and when its draws are enough for quantiles.
SETTLED_SD = 0.03
MIN_SETTLED_DRAWS = 1000

# The page shows problems in this order; others follow by name.
FLAT_PROBLEMS = (
    "logistic",
    "flights",
    "probit",
    "poisson",
    "robust",
    "mixture",
    "wishart",
    "rare",
    "small",
)
OURS = "vcmc"
LISTED, SECOND, REFINED = f"{OURS}, K as listed", f"{OURS}, second run", f"{OURS}, refined"
NUTS = "NumPyro NUTS"
REFERENCE = "reference"
OF_PROBLEM = ("about", "num_rows", "num_groups", "num_shards")  # the same in all records of it


@dataclass(frozen=True)
class Score:
    """Errors and times of one answer.

    Attributes:
        about: the record that the child process wrote.
        mean, sd, quantile: median errors over all parameters, of a hierarchical problem over its
            globals; of means and quantiles in posterior sds, of sds relative.
        worst: the largest error of a mean, in posterior sds.
        worst_sd: the largest relative error of an sd.
        local_mean, local_sd, local_quantile, local_worst, local_worst_sd: the same over local
            parameters; NaN if there are none.
        to_goal: seconds until the median error of means, of globals and of locals, stays below the
            goal.
        ess: smallest effective sample size over the parameters; NaN if there are no chains.
    """

    about: dict[str, Any]
    mean: float = np.nan
    worst: float = np.nan
    sd: float = np.nan
    quantile: float = np.nan
    worst_sd: float = np.nan
    local_mean: float = np.nan
    local_worst: float = np.nan
    local_sd: float = np.nan
    local_quantile: float = np.nan
    local_worst_sd: float = np.nan
    to_goal: float = np.nan
    ess: float = np.nan

    def of(self, error: str) -> float:
        """Return an error over globals or over locals, whichever is larger; NaN if unknown."""
        values = (getattr(self, error), getattr(self, f"local_{error}"))
        return max((value for value in values if np.isfinite(value)), default=np.nan)

    @property
    def seconds(self) -> float:
        """Total seconds."""
        return float(self.about.get("seconds", np.nan))

    @property
    def seconds_spent(self) -> float:
        """Total seconds; of a method that was stopped, those that it was given."""
        waited = self.about.get("seconds_waited", np.nan)
        is_stopped = self.about.get("failure", "").startswith("stopped")
        return float(waited if is_stopped else self.seconds)

    @property
    def has_answer(self) -> bool:
        """Whether there are draws, and a reference to compare them with."""
        return bool(np.isfinite(self.mean))


Scores = dict[str, dict[str, Score]]


@dataclass(frozen=True)
class Results:
    """Scores by problem and method, and the setting of the run.

    Attributes:
        scores: scores by problem and method; a problem's reference has a record and no errors.
        setting: `began`, `ended`, `minutes`, `cores`, `machine` and `versions`.
    """

    scores: Scores
    setting: dict[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Problems with a reference, in the order of the page."""
        names = [
            name
            for name, of_problem in self.scores.items()
            if REFERENCE in of_problem and "@" not in name
        ]
        order = {name: place for place, name in enumerate(FLAT_PROBLEMS)}
        return sorted(names, key=lambda name: (self.num_groups(name), order.get(name, 99), name))

    @property
    def methods(self) -> list[str]:
        """All methods but the reference, in the order in which they first occur."""
        names = dict.fromkeys(name for of_problem in self.scores.values() for name in of_problem)
        return [name for name in names if name != REFERENCE]

    def entrants(self, problem: str) -> list[str]:
        """Return the methods that were given a problem of its kind, hierarchical or not."""
        kin = [
            name
            for name in self.problems
            if self.is_hierarchical(name) == self.is_hierarchical(problem)
        ]
        return [name for name in self.methods if any(name in self.scores[item] for item in kin)]

    @property
    def peers(self) -> list[str]:
        """Methods that are not vcmc's."""
        return [name for name in self.methods if not is_ours(name)]

    def fact(self, problem: str, name: str, default: Any = None) -> Any:
        """Return an entry that all records of a problem share."""
        abouts = (score.about for score in self.scores[problem].values())
        return next((about[name] for about in abouts if name in about), default)

    def num_rows(self, problem: str) -> int:
        """Return the number of rows; 0 if it was not recorded."""
        return int(self.fact(problem, "num_rows", 0))

    def num_groups(self, problem: str) -> int:
        """Return the number of groups of a hierarchical problem; 0 for others."""
        return int(self.fact(problem, "num_groups", 0))

    def is_hierarchical(self, problem: str) -> bool:
        """Return whether a problem has groups."""
        return self.num_groups(problem) > 0

    def score(self, problem: str, method: str) -> Score | None:
        """Return a score that has errors, or None."""
        score = self.scores.get(problem, {}).get(method)
        return score if score and score.has_answer else None

    def rivals(self, problem: str) -> Iterator[tuple[str, Score]]:
        """Yield the other methods that gave an answer to a problem."""
        for name in self.peers:
            if score := self.score(problem, name):
                yield name, score


def is_ours(method: str) -> bool:
    """Return whether a method is a way to run vcmc."""
    return method.split(",")[0] == OURS


def title(method: str) -> str:
    """Return a method's name as it is printed: variants in brackets, as names stand in lists."""
    name, comma, variant = method.partition(", ")
    return f"{name} ({variant})" if comma else name


def write(results: Results, path: Path) -> None:
    """Write results as JSON; what is not known is left out."""
    problems: dict[str, Any] = {}
    for problem, of_problem in results.scores.items():
        shared = {key: results.fact(problem, key) for key in OF_PROBLEM}
        methods = {name: _entries(score) for name, score in of_problem.items()}
        problems[problem] = {**_known(shared), "methods": methods}
    content = {"setting": results.setting, "problems": problems}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _entries(score: Score) -> dict[str, Any]:
    entries = asdict(score)
    about = entries.pop("about")
    shared = ("problem", "method", "versions", "vcmc", "ended", "is_skewed", *OF_PROBLEM)
    record = {name: value for name, value in about.items() if name not in shared}
    return _known(entries | {"record": _known(record)})


def _known(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: _rounded(value) for name, value in entries.items() if _is_known(value)}


def _is_known(value: Any) -> bool:
    if isinstance(value, float):
        return bool(np.isfinite(value))
    return value is not None and value not in ("", {}, [])


def _rounded(value: Any) -> Any:
    """Round numbers to six digits, more than any table shows."""
    if isinstance(value, dict):
        return _known(value)
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def read(path: Path) -> Results:
    """Read results that were written as JSON."""
    content = json.loads(path.read_text())
    scores: Scores = {}
    for problem, entries in content["problems"].items():
        shared = {key: entries[key] for key in OF_PROBLEM if key in entries}
        scores[problem] = {
            name: Score(shared | of_method.pop("record", {}), **of_method)
            for name, of_method in entries["methods"].items()
        }
    return Results(scores, content["setting"])
