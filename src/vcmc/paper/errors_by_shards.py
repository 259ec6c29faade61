"""The paper's main figure: errors of expectations against the number of shards, by class of test functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .base import ELAPSED, AbstractExperiment, Arrays, Job, Results, Step
from .pictures import draw_errors
from .problem import Problem, Size
from .trial import FLOOR, REFINED, Trial, trial_of

BASELINE = "Gaussian"
PAPERS = (
    "uniform",
    BASELINE,
    "VCMC",
)  # the paper's methods, by whose errors the easiest functions are chosen
QUARTILES = (0.25, 0.5, 0.75)


class Entry(NamedTuple):
    """Quartiles of relative errors over a class of test functions, and of their differences from the Gaussian baseline's.

    Attributes:
        num_shards: number of shards; 1 for the floor.
        method: the method.
        functions: the class of test functions.
        error_lower, error, error_upper: quartiles of errors.
        difference_lower, difference, difference_upper: quartiles of the differences.
        of_floor: the median error, as a multiple of the floor's.
        verdict: what the draws say of themselves.
    """

    num_shards: int
    method: str
    functions: str
    error_lower: float
    error: float
    error_upper: float
    difference_lower: float
    difference: float
    difference_upper: float
    of_floor: float
    verdict: str


class ByIndex(NamedTuple):
    """The relative error of one function of the first class, at the largest number of shards."""

    method: str
    number: int
    error: float


Errors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ErrorsByShards(AbstractExperiment):
    """Errors of expectations against the number of shards.

    Attributes:
        name: what it is called.
        title: what it shows, in a sentence.
        make: makes the problem, from a size and a seed.
        sizes: sizes by name.
        by_index: show the errors of the first class by index, too, and what the index is.
    """

    name: str
    title: str
    make: Callable[[Size, int], Problem]
    sizes: Mapping[str, Size]
    by_index: str = ""

    def trial(self, job: Job) -> Trial:
        """The problem at a job's size."""
        return trial_of(self.name, self.make, self.sizes[job.size], job)

    def steps(self, job: Job) -> list[Step]:
        return self.trial(job).steps()

    def finish(self, job: Job) -> Results:
        trial = self.trial(job)
        floors, floor = trial.floor(), trial.floor_medians()
        entries = [
            _entry(1, FLOOR, name, [each[name] for each in floors], None, floor[name], "")
            for name in floors[0]
        ]
        about = {}
        for num_shards in trial.size.shards:
            stored = _stored(trial, num_shards)
            errors = {name: trial.errors_of(each) for name, each in stored.items()}
            verdicts = {name: str(each["verdict"]) for name, each in stored.items()}
            entries += _entries(num_shards, errors, verdicts, floor, job.easiest)
            about[str(num_shards)] = _about_shards(trial, num_shards, stored)
        tables: dict[str, Any] = {"": entries}
        if self.by_index:
            tables["-by-index"] = _by_index(errors, floors)
        settings = {
            "problem": trial.problem.settings(),
            "scale": trial.size.settings(),
            "methods": {name: repr(method.combiner) for name, method in trial.methods.items()},
            "serial": trial.serial_settings(),
            "shards": about,
            "easiest": job.easiest,
        }
        title = f"{self.title}: d = {trial.size.dim}, N = {trial.size.num_rows}"
        figure = draw_errors(title, entries, tables.get("-by-index", []), self.by_index)
        return Results(tables, settings, figure)


def _stored(trial: Trial, num_shards: int) -> dict[str, dict[str, np.ndarray]]:
    """What was kept of every method, by its name."""
    refined = [REFINED] if num_shards in trial.size.refined else []
    return {name: trial.folder.load(f"{name}-{num_shards}") for name in (*trial.methods, *refined)}


def _entries(
    num_shards: int,
    errors: Mapping[str, Errors],
    verdicts: Mapping[str, str],
    floor: Mapping[str, float],
    easiest: float,
) -> list[Entry]:
    entries = []
    for functions in floor:
        chosen = _easiest([errors[name][functions] for name in PAPERS], easiest)
        base = errors[BASELINE][functions][chosen]
        for name, of_method in errors.items():
            own, verdict = of_method[functions][chosen], verdicts[name]
            entries.append(
                _entry(num_shards, name, functions, [own], base, floor[functions], verdict)
            )
    return entries


def _easiest(errors: list[np.ndarray], share: float) -> np.ndarray:
    """The share of the functions whose largest error over the methods is smallest."""
    worst = np.max(errors, axis=0)
    return np.sort(np.argsort(worst, kind="stable")[: max(1, round(share * len(worst)))])


def _entry(
    num_shards: int,
    method: str,
    functions: str,
    errors: list[np.ndarray],
    base: np.ndarray | None,
    floor: float,
    verdict: str,
) -> Entry:
    quartiles = partial(np.quantile, q=QUARTILES)
    low, middle, high = np.mean([quartiles(each) for each in errors], axis=0)
    less, between, more = (np.nan,) * 3 if base is None else quartiles(errors[0] - base)
    return Entry(
        num_shards,
        method,
        functions,
        low,
        middle,
        high,
        less,
        between,
        more,
        middle / floor,
        verdict,
    )


def _by_index(errors: Mapping[str, Errors], floors: list[dict[str, np.ndarray]]) -> list[ByIndex]:
    first = next(iter(floors[0]))
    of_first = {name: each[first] for name, each in errors.items()}
    of_first[FLOOR] = np.mean([each[first] for each in floors], axis=0)
    return [
        ByIndex(name, 1 + index, error)
        for name, each in of_first.items()
        for index, error in enumerate(each)
    ]


def _about_shards(trial: Trial, num_shards: int, stored: Mapping[str, Arrays]) -> dict[str, Any]:
    """The largest R-hat of the shards' draws, seconds of sampling and of the methods' steps, and what they noted."""
    kinds = [step.name for step in trial.shard_steps(num_shards)]
    drawn = [trial.folder.load(name, "rhat", "seconds") for name in kinds]
    return {
        "largest_rhat": round(max(float(np.nanmax(each["rhat"])) for each in drawn), 3),
        "seconds_of_sampling": {
            name: round(float(each["seconds"]), 2) for name, each in zip(kinds, drawn, strict=True)
        },
        "seconds_of_steps": {name: round(float(each[ELAPSED]), 2) for name, each in stored.items()},
        "notes": {
            name: each["notes"].tolist() for name, each in stored.items() if len(each["notes"])
        },
    }
