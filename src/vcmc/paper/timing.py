"""Error against seconds of optimization: the left half of the paper's Figure 4.

The problems are the probit regression (d = 300) and the mixture (noise sd 1), with the shards and
serial chains of `probit_300.py` and `mixture_1.py`. Errors are those of optimizations stopped after
some iterations: medians over first moments, or over comemberships. Seconds are those at which the
longest optimization reached these iterations in its second run, when everything was compiled, on
all cores, including the initial averages.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from ..combiners.base import AbstractCombiner, Combined, Subposteriors
from ..combiners.variational import Variational
from ..variational.newton import Newton
from . import mixture_1, probit_300
from .base import AbstractExperiment, Arrays, Folder, Job, Results, Step
from .methods import paper_method
from .pictures import draw_timing
from .trial import Trial

EXPERIMENTS = (probit_300.EXPERIMENT, mixture_1.EXPERIMENT)
ITERATIONS = {"VCMC": (1, 3, 10, 25, 50), "default": (1, 2, 3, 5, 10)}


class Entry(NamedTuple):
    """The median error after a number of iterations."""

    problem: str
    num_shards: int
    method: str
    iterations: int
    error: float


@dataclass(frozen=True)
class Timing(AbstractExperiment):
    """Error against seconds of optimization."""

    name: str = "timing"
    title: str = "Error against seconds of optimisation"

    def steps(self, job: Job) -> list[Step]:
        steps = []
        for experiment in EXPERIMENTS:
            trial = experiment.trial(job)
            steps += trial.serial_steps()
            for num_shards in trial.size.shards:
                steps += trial.shard_steps(num_shards)
                steps += [_step(trial, method, num_shards) for method in ITERATIONS]
        return steps

    def finish(self, job: Job) -> Results:
        entries, seconds, settings = [], [], {}
        floors = {}
        for experiment in EXPERIMENTS:
            trial = experiment.trial(job)
            floors[trial.name] = next(iter(trial.floor_medians().values()))
            settings[trial.name] = {
                "scale": trial.size.settings(),
                "serial": trial.serial_settings(),
            }
            for num_shards in trial.size.shards:
                for method in ITERATIONS:
                    arrays = _folder(trial).load(f"{method}-{num_shards}")
                    columns = (arrays[name] for name in ("iterations", "error", "seconds"))
                    for count, error, elapsed in zip(*columns, strict=True):
                        entries.append(
                            Entry(trial.name, num_shards, method, int(count), float(error))
                        )
                        seconds.append({**entries[-1]._asdict(), "seconds": float(elapsed)})
        figure = draw_timing(self.title, seconds, floors, settings)
        all_settings = {"problems": settings, "floor": floors, "seconds": seconds}
        return Results({"": entries}, all_settings, figure)


def _folder(trial: Trial) -> Folder:
    return trial.folder_for("timing", timed=ITERATIONS)


def _step(trial: Trial, method: str, num_shards: int) -> Step:
    make = partial(errors_and_seconds, trial, method, num_shards)
    return Step(f"{method}-{num_shards}", f"{trial.name}-{method}", make, _folder(trial))


def errors_and_seconds(trial: Trial, method: str, num_shards: int) -> Arrays:
    """Return errors and seconds by number of iterations."""
    shards = trial.subposteriors(num_shards, as_paper=method == "VCMC")
    errors = []
    for number in ITERATIONS[method]:
        _, combined = time_combiner(truncated(trial, method, number), shards)
        errors.append(trial.median_error(combined.draws))
    seconds = seconds_of_iterations(trial, method, shards)
    return {"iterations": ITERATIONS[method], "error": errors, "seconds": seconds}


def seconds_of_iterations(trial: Trial, method: str, shards: Subposteriors) -> list[float]:
    """Return the seconds from the start to each number of iterations, without compilation."""
    clock: list[float] = []
    timed_shards = replace(shards, advance=lambda: clock.append(time.perf_counter()))
    combiner = truncated(trial, method, ITERATIONS[method][-1])
    time_combiner(combiner, timed_shards)
    clock.clear()
    begin = time.perf_counter()
    time_combiner(combiner, timed_shards)
    # an optimizer may report an iteration before it evaluates the new point: take the next report
    return [clock[min(number, len(clock) - 1)] - begin for number in ITERATIONS[method]]


def truncated(trial: Trial, method: str, iterations: int) -> Variational:
    """Return a method that stops after a number of iterations."""
    if method == "VCMC":
        return paper_method(trial.problem, iterations)
    return Variational(optimizer=Newton(max_iterations=iterations))


def time_combiner(combiner: AbstractCombiner, shards: Subposteriors) -> tuple[float, Combined]:
    """Return the seconds of a combination, and its result."""
    begin = time.perf_counter()
    combined = combiner(shards)
    combined.draws.block_until_ready()
    return time.perf_counter() - begin, combined


EXPERIMENT = Timing()
