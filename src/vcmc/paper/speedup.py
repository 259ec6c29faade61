"""Error against speed-up over serial sampling: the right half of the paper's Figure 4.

The problems are the probit regression (d = 300) and the mixture (noise sd 1). The mixture is
sampled by NUTS, since the paper uses HMC; by Gibbs sampling, as in the other figures, a serial
chain takes five seconds and needs no shards.

The speed-up of K shards is the seconds of the serial chain over those of the slowest shard plus the
combination. The serial chain and the shards (at most twenty of them) are timed one after the other,
in a process bound to one core. The combination may use all cores of this machine, and is timed in
its second run, when everything is compiled. Shards of our default method make as many draws as
`infer` would ask them for, which are paired at random; those of the other methods, and the serial
chain, make all draws. On K machines each would evaluate its own rows: the
seconds of such a combination, where of each evaluation only the slowest shard counts, are in the
JSON file as well.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..density import evaluate, hessian_products
from ..executors.local import Local
from ..inference.arguments import DEFAULT_DRAWS
from ..inference.draw_counts import initial_shard_draws
from ..samplers.base import AbstractSampler
from ..samplers.nuts import NUTS
from ..samplers.start import common_start, search_starts
from ..target import Target
from . import mixture_1, probit_300
from .base import AbstractExperiment, Arrays, Folder, Job, Results, Step
from .pictures import draw_speedup
from .timing import time_combiner
from .trial import Trial, thinning

EXPERIMENTS = {
    experiment.name: experiment for experiment in (probit_300.EXPERIMENT, mixture_1.EXPERIMENT)
}
METHODS = ("Gaussian", "VCMC", "default")
MAX_TIMED_SHARDS = 20  # shards whose sampling is timed, evenly spaced
SAMPLERS: Mapping[str, AbstractSampler] = {mixture_1.EXPERIMENT.name: NUTS()}


class Entry(NamedTuple):
    """The median error of a method."""

    problem: str
    num_shards: int
    method: str
    error: float


@dataclass(frozen=True)
class SpeedUp(AbstractExperiment):
    """Error against speed-up over serial sampling."""

    name: str = "speedup"
    title: str = "Error against speed-up over serial sampling"

    def steps(self, job: Job) -> list[Step]:
        steps = []
        for experiment in EXPERIMENTS.values():
            trial = experiment.trial(job)
            steps += trial.serial_steps()
            steps.append(_sampling_step(trial, 1, trial.size.num_draws))
            for num_shards in trial.size.shards:
                steps += [
                    _sampling_step(trial, num_shards, count)
                    for count in sorted({shard_draws(trial, name, num_shards) for name in METHODS})
                ]
                steps += trial.shard_steps(num_shards)
                steps += [_combining_step(trial, method, num_shards) for method in METHODS]
        return steps

    def finish(self, job: Job) -> Results:
        entries, seconds, settings = [], [], {}
        for experiment in EXPERIMENTS.values():
            trial = experiment.trial(job)
            folder = _folder(trial)
            serial = _slowest(trial, 1, trial.size.num_draws)
            settings[trial.name] = {
                "scale": trial.size.settings(),
                "sampler": repr(_sampler(trial)),
            }
            for num_shards in trial.size.shards:
                for method in METHODS:
                    count = shard_draws(trial, method, num_shards)
                    slowest = _slowest(trial, num_shards, count)
                    stored = folder.load(f"{method}-{num_shards}")
                    entries.append(Entry(trial.name, num_shards, method, float(stored["error"])))
                    speedups = {"shard_draws": count} | _speedups(serial, slowest, stored)
                    seconds.append(entries[-1]._asdict() | speedups)
        figure = draw_speedup(self.title, seconds)
        return Results({"": entries}, {"problems": settings, "seconds": seconds}, figure)


def shard_draws(trial: Trial, method: str, num_shards: int) -> int:
    """Return the number of draws that a shard makes for a method."""
    if method != "default":
        return trial.size.num_draws
    return min(trial.size.num_draws, initial_shard_draws(num_shards, DEFAULT_DRAWS, 1))


def _slowest(trial: Trial, num_shards: int, num_draws: int) -> float:
    stored = _folder(trial).load(f"alone-{num_shards}-{num_draws}")
    return float(stored["seconds"].max())


def _speedups(serial: float, slowest: float, stored: Arrays) -> dict[str, float]:
    """Return seconds and speed-ups of a method, by the names in the JSON file."""
    combine, combine_apart = float(stored["seconds"]), float(stored["seconds_apart"])
    return {
        "serial_seconds": serial,
        "slowest_shard_seconds": slowest,
        "combine_seconds": combine,
        "combine_seconds_first_call": float(stored["seconds_first"]),
        "combine_seconds_rows_apart": combine_apart,
        "speedup": serial / (slowest + combine),
        "speedup_rows_apart": serial / (slowest + combine_apart),
    }


def _sampler(trial: Trial) -> AbstractSampler:
    return SAMPLERS.get(trial.name, trial.problem.sampler)


def _folder(trial: Trial) -> Folder:
    return trial.folder_for("speedup", timed=repr(_sampler(trial)))


def _sampling_step(trial: Trial, num_shards: int, num_draws: int) -> Step:
    def make() -> Arrays:
        arguments = trial.name, trial.job, num_shards, num_draws
        return {"seconds": run_on_one_core(sampling_seconds, *arguments)}

    name = f"alone-{num_shards}-{num_draws}"
    return Step(name, f"{trial.name}-alone", make, _folder(trial))


def run_on_one_core(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process that is bound to one core."""
    spawn = multiprocessing.get_context("spawn")
    with one_core(), ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


@contextmanager
def one_core() -> Iterator[None]:
    """Bind processes started in this context to one core, where the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def sampling_seconds(name: str, job: Job, num_shards: int, num_draws: int) -> np.ndarray:
    """Return the seconds of sampling each timed shard, one after the other."""
    trial = EXPERIMENTS[name].trial(job)
    sampler, size = _sampler(trial), trial.size
    target, key = trial.target(num_shards), jax.random.key(job.seed)
    pilot = target.pilot
    start = common_start(target, search_starts(pilot, key))
    sampler.prepare(pilot, start)
    seconds = []
    for shard in (
        np.linspace(0, num_shards - 1, min(num_shards, MAX_TIMED_SHARDS)).round().astype(int)
    ):
        begin = time.perf_counter()
        sampler.run(
            target.shard_cache.density(shard),
            start,
            jax.random.fold_in(key, shard),
            num_draws,
            thin=thinning(sampler, size),
        )
        seconds.append(time.perf_counter() - begin)
    return np.array(seconds)


class SeparateMachines(Target):
    """A target that imitates one machine per shard.

    Shards are evaluated one after the other; `seconds_saved` sums the seconds of all but the
    slowest shard of each evaluation.
    """

    seconds_saved = 0.0

    def __call__(self, points: Any, only: Sequence[int] | None = None) -> tuple[Any, Any]:
        shards = range(self.num_shards) if only is None else only
        parts = self._map(lambda shard: evaluate(self.shard_cache.density(shard), points), shards)
        scale = self.num_shards / len(shards)
        values, scores = (np.sum(terms, axis=0) for terms in zip(*parts, strict=True))
        return jnp.asarray(scale * values), jnp.asarray(scale * scores)

    def hessian_products(self, point: Any, directions: Any) -> Any:
        parts = self._map(
            lambda shard: (hessian_products(self.shard_cache.density(shard), point, directions),),
            range(self.num_shards),
        )
        return jnp.asarray(np.sum([part for (part,) in parts], axis=0))

    def _map(
        self, function: Callable[[int], tuple[Any, ...]], shards: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        seconds, results = [], []
        for shard in shards:
            begin = time.perf_counter()
            results.append(tuple(np.asarray(part) for part in function(shard)))
            seconds.append(time.perf_counter() - begin)
        self.seconds_saved += sum(seconds) - max(seconds)
        return results


def _combining_step(trial: Trial, method: str, num_shards: int) -> Step:
    make = partial(error_and_seconds, trial, method, num_shards)
    return Step(f"{method}-{num_shards}", f"{trial.name}-{method}", make, _folder(trial))


def error_and_seconds(trial: Trial, name: str, num_shards: int) -> Arrays:
    """Return a method's error, and its seconds: first run, second run, one machine per shard."""
    method = trial.methods[name]
    shards = trial.subposteriors(num_shards, method.as_paper)
    if name == "default":
        draws = shards.stacked[:, : shard_draws(trial, name, num_shards)]
        shards = replace(shards, draws=draws, num_posterior_draws=DEFAULT_DRAWS)
    first_seconds, _ = time_combiner(method.combiner, shards)
    seconds, combined = time_combiner(method.combiner, shards)
    error = trial.median_error(combined.draws)
    target = trial.target(num_shards)
    machines = SeparateMachines(target.model, target.shard_cache.partition, Local())
    time_combiner(method.combiner, replace(shards, target=machines))  # compiles
    saved_before = machines.seconds_saved
    total, _ = time_combiner(method.combiner, replace(shards, target=machines))
    return {
        "error": error,
        "seconds_first": first_seconds,
        "seconds": seconds,
        "seconds_apart": total - (machines.seconds_saved - saved_before),
    }


EXPERIMENT = SpeedUp()
