"""The paper's main figure: errors of expectations by number of shards and class of functions."""

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
PAPER_METHODS = ("uniform", BASELINE, "VCMC")  # the easiest functions are chosen by their errors
QUARTILES = (0.25, 0.5, 0.75)


class Entry(NamedTuple):
    """Quartiles of relative errors over a class of functions, and of differences from the baseline.

    Attributes:
        num_shards: number of shards; 1 for the floor.
        method: the method.
        functions: the class of test functions.
        error_lower, error, error_upper: quartiles of errors.
        difference_lower, difference, difference_upper: quartiles of the differences.
        of_floor: the median error as a multiple of the floor's.
        verdict: the verdict of the diagnosis.
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
    """The relative error of one function of the first class, with the most shards."""

    method: str
    number: int
    error: float


Errors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ErrorsByShards(AbstractExperiment):
    """Errors of expectations by number of shards.

    Attributes:
        name: name of the experiment.
        title: title of the figure.
        make: returns the problem of a size and a seed.
        sizes: sizes by name.
        by_index: meaning of the index of the first class; if not empty, errors are also shown by
            index.
    """

    name: str
    title: str
    make: Callable[[Size, int], Problem]
    sizes: Mapping[str, Size]
    by_index: str = ""

    def trial(self, job: Job) -> Trial:
        """Return the problem at a job's size."""
        return trial_of(self.name, self.make, self.sizes[job.size], job)

    def steps(self, job: Job) -> list[Step]:
        return self.trial(job).steps()

    def finish(self, job: Job) -> Results:
        trial = self.trial(job)
        floors, floor = trial.floor(), trial.floor_medians()
        entries = [
            _entry(1, FLOOR, name, [errors[name] for errors in floors], None, floor[name], "")
            for name in floors[0]
        ]
        by_shards = {}
        for num_shards in trial.size.shards:
            stored = _stored(trial, num_shards)
            errors = {name: trial.errors_of(arrays) for name, arrays in stored.items()}
            verdicts = {name: str(arrays["verdict"]) for name, arrays in stored.items()}
            entries += _entries(num_shards, errors, verdicts, floor, job.easiest)
            by_shards[str(num_shards)] = _shard_settings(trial, num_shards, stored)
        tables: dict[str, Any] = {"": entries}
        if self.by_index:
            tables["-by-index"] = _by_index(errors, floors)
        settings = {
            "problem": trial.problem.settings(),
            "scale": trial.size.settings(),
            "methods": {name: repr(method.combiner) for name, method in trial.methods.items()},
            "serial": trial.serial_settings(),
            "shards": by_shards,
            "easiest": job.easiest,
        }
        title = f"{self.title}: d = {trial.size.dim}, N = {trial.size.num_rows}"
        figure = draw_errors(title, entries, tables.get("-by-index", []), self.by_index)
        return Results(tables, settings, figure)


def _stored(trial: Trial, num_shards: int) -> dict[str, dict[str, np.ndarray]]:
    """Read the stored arrays of every method."""
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
        chosen = _easiest([errors[name][functions] for name in PAPER_METHODS], easiest)
        base = errors[BASELINE][functions][chosen]
        for name, method_errors in errors.items():
            own, verdict = method_errors[functions][chosen], verdicts[name]
            entries.append(
                _entry(num_shards, name, functions, [own], base, floor[functions], verdict)
            )
    return entries


def _easiest(errors: list[np.ndarray], share: float) -> np.ndarray:
    """Return the indices of the functions with the smallest largest error over the methods."""
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
    lower, median, upper = np.mean([quartiles(values) for values in errors], axis=0)
    differences = (np.nan,) * 3 if base is None else quartiles(errors[0] - base)
    return Entry(
        num_shards,
        method,
        functions,
        error_lower=lower,
        error=median,
        error_upper=upper,
        difference_lower=differences[0],
        difference=differences[1],
        difference_upper=differences[2],
        of_floor=median / floor,
        verdict=verdict,
    )


def _by_index(errors: Mapping[str, Errors], floors: list[dict[str, np.ndarray]]) -> list[ByIndex]:
    first = next(iter(floors[0]))
    of_first = {name: by_class[first] for name, by_class in errors.items()}
    of_first[FLOOR] = np.mean([by_class[first] for by_class in floors], axis=0)
    return [
        ByIndex(name, 1 + index, error)
        for name, values in of_first.items()
        for index, error in enumerate(values)
    ]


def _shard_settings(trial: Trial, num_shards: int, stored: Mapping[str, Arrays]) -> dict[str, Any]:
    """Return the largest R-hat of the shards, seconds of sampling and of steps, and notes."""
    names = [step.name for step in trial.shard_steps(num_shards)]
    samples = {name: trial.folder.load(name, "rhat", "seconds") for name in names}
    rhats = [float(np.nanmax(sample["rhat"])) for sample in samples.values()]
    return {
        "largest_rhat": round(max(rhats), 3),
        "seconds_of_sampling": {
            name: round(float(sample["seconds"]), 2) for name, sample in samples.items()
        },
        "seconds_of_steps": {
            name: round(float(arrays[ELAPSED]), 2) for name, arrays in stored.items()
        },
        "notes": {
            name: arrays["notes"].tolist()
            for name, arrays in stored.items()
            if len(arrays["notes"])
        },
    }
