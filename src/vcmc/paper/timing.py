"""Error against seconds of optimisation: the left half of the paper's Figure 4, for the probit regression (d = 300) and the mixture (noise sd 1).

Errors are of optimisations that were stopped after some iterations; seconds are those at which the longest of them got there, the second time that it was
run, when everything was compiled. They are of both cores, and include the averages that it starts from. Draws of shards and serial chains are those of
`probit_300.py` and `mixture_1.py`. The error is the median over first moments, or over comemberships.
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
    """The median error after some iterations."""

    problem: str
    num_shards: int
    method: str
    iterations: int
    error: float


@dataclass(frozen=True)
class Timing(AbstractExperiment):
    """Error against seconds of optimisation."""

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
                    found = _folder(trial).load(f"{method}-{num_shards}")
                    for count, error, took in zip(
                        found["iterations"], found["error"], found["seconds"], strict=True
                    ):
                        entries.append(
                            Entry(trial.name, num_shards, method, int(count), float(error))
                        )
                        seconds.append({**entries[-1]._asdict(), "seconds": float(took)})
        figure = draw_timing(self.title, seconds, floors, settings)
        said = {"problems": settings, "floor": floors, "seconds": seconds}
        return Results({"": entries}, said, figure)


def _folder(trial: Trial) -> Folder:
    return trial.folder_for("timing", timed=ITERATIONS)


def _step(trial: Trial, method: str, num_shards: int) -> Step:
    make = partial(timed_iterations, trial, method, num_shards)
    return Step(f"{method}-{num_shards}", f"{trial.name}-{method}", make, _folder(trial))


def timed_iterations(trial: Trial, method: str, num_shards: int) -> Arrays:
    """Errors and seconds after more and more iterations."""
    shards = trial.subposteriors(num_shards, as_paper=method == "VCMC")
    errors = []
    for number in ITERATIONS[method]:
        _, combined = timed(stopped(trial, method, number), shards)
        errors.append(trial.median_error(combined.draws))
    seconds = seconds_of_iterations(trial, method, shards)
    return {"iterations": ITERATIONS[method], "error": errors, "seconds": seconds}


def seconds_of_iterations(trial: Trial, method: str, shards: Subposteriors) -> list[float]:
    """Seconds from the beginning of combining to the end of some iterations; what was compiled before does not count."""
    clock: list[float] = []
    watched = replace(shards, advance=lambda: clock.append(time.perf_counter()))
    combiner = stopped(trial, method, ITERATIONS[method][-1])
    timed(combiner, watched)
    clock.clear()
    begin = time.perf_counter()
    timed(combiner, watched)
    # a rule may say that it went on before it evaluates where it went to, so that the next call is waited for
    return [clock[min(number, len(clock) - 1)] - begin for number in ITERATIONS[method]]


def stopped(trial: Trial, method: str, iterations: int) -> Variational:
    """A method that stops after some iterations."""
    if method == "VCMC":
        return paper_method(trial.problem, iterations)
    return Variational(optimizer=Newton(max_iterations=iterations))


def timed(combiner: AbstractCombiner, shards: Subposteriors) -> tuple[float, Combined]:
    """Seconds of combining, and what came of it."""
    begin = time.perf_counter()
    combined = combiner(shards)
    combined.draws.block_until_ready()
    return time.perf_counter() - begin, combined


EXPERIMENT = Timing()
