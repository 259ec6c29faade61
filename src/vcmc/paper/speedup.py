"""Error against speed-up over serial sampling: the right half of the paper's Figure 4, for the probit regression (d = 300) and the mixture (noise sd 1).

The mixture is sampled by NUTS here, as HMC is what the paper used; Gibbs sampling, which the other figures use, takes a serial chain
five seconds, and nobody needs shards for that. The speed-up of K shards is the seconds of the serial chain over those of the slowest shard and of combining. The serial chain and every shard are
timed alone, one after the other, by a process that may use one core (of more than twenty shards, twenty); combining may use all cores of this machine, and is timed the second
time, when everything is compiled. On K machines rows would be evaluated where they are: what combining then takes, with every evaluation of a shard timed
alone and only the slowest counted, is in the JSON file, too.
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
from ..samplers.base import AbstractSampler
from ..samplers.nuts import NUTS
from ..samplers.start import common_start, starts_of
from ..target import Target
from . import mixture_1, probit_300
from .base import AbstractExperiment, Arrays, Folder, Job, Results, Step
from .pictures import draw_speedup
from .timing import timed
from .trial import Trial, thinning

EXPERIMENTS = {each.name: each for each in (probit_300.EXPERIMENT, mixture_1.EXPERIMENT)}
METHODS = ("Gaussian", "VCMC", "default")
MAX_TIMED = 20  # shards whose sampling is timed, evenly chosen
SAMPLERS: Mapping[str, AbstractSampler] = {mixture_1.EXPERIMENT.name: NUTS()}


class Entry(NamedTuple):
    """The median error of a method."""

    problem: str
    num_shards: int
    method: str
    error: float


@dataclass(frozen=True)
class SpeedUp(AbstractExperiment):
    """Error against speed-up."""

    name: str = "speedup"
    title: str = "Error against speed-up over serial sampling"

    def steps(self, job: Job) -> list[Step]:
        steps = []
        for experiment in EXPERIMENTS.values():
            trial = experiment.trial(job)
            steps += trial.serial_steps()
            for num_shards in (1, *trial.size.shards):
                steps.append(_sampling(trial, num_shards))
            for num_shards in trial.size.shards:
                steps += trial.shard_steps(num_shards)
                steps += [_combining(trial, method, num_shards) for method in METHODS]
        return steps

    def finish(self, job: Job) -> Results:
        entries, seconds, settings = [], [], {}
        for experiment in EXPERIMENTS.values():
            trial = experiment.trial(job)
            folder = _folder(trial)
            serial = float(folder.load("alone-1")["seconds"].max())
            settings[trial.name] = {
                "scale": trial.size.settings(),
                "sampler": repr(_sampler(trial)),
            }
            for num_shards in trial.size.shards:
                slowest = float(folder.load(f"alone-{num_shards}")["seconds"].max())
                for method in METHODS:
                    found = folder.load(f"{method}-{num_shards}")
                    entries.append(Entry(trial.name, num_shards, method, float(found["error"])))
                    here, apart = float(found["seconds"]), float(found["seconds_apart"])
                    seconds.append(
                        {
                            **entries[-1]._asdict(),
                            "serial_seconds": serial,
                            "slowest_shard_seconds": slowest,
                            "combine_seconds": here,
                            "combine_seconds_first_call": float(found["seconds_first"]),
                            "combine_seconds_rows_apart": apart,
                            "speedup": serial / (slowest + here),
                            "speedup_rows_apart": serial / (slowest + apart),
                        }
                    )
        figure = draw_speedup(self.title, seconds)
        return Results({"": entries}, {"problems": settings, "seconds": seconds}, figure)


def _sampler(trial: Trial) -> AbstractSampler:
    return SAMPLERS.get(trial.name, trial.problem.sampler)


def _folder(trial: Trial) -> Folder:
    return trial.folder_for("speedup", timed=repr(_sampler(trial)))


def _sampling(trial: Trial, num_shards: int) -> Step:
    def make() -> Arrays:
        return {"seconds": in_one_core(seconds_alone, trial.name, trial.job, num_shards)}

    return Step(f"alone-{num_shards}", f"{trial.name}-alone", make, _folder(trial))


def in_one_core(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns that is called in a process of its own, which may use one core."""
    spawn = multiprocessing.get_context("spawn")
    with one_core(), ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


@contextmanager
def one_core() -> Iterator[None]:
    """Let processes that are started inside use one core, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def seconds_alone(name: str, job: Job, num_shards: int) -> np.ndarray:
    """Seconds that sampling takes, shard after shard, from a common start; of many shards, some are timed."""
    trial = EXPERIMENTS[name].trial(job)
    sampler, size = _sampler(trial), trial.size
    target, key = trial.target(num_shards), jax.random.key(job.seed)
    pilot = target.pilot
    start = common_start(target, starts_of(pilot, key))
    sampler.prepare(pilot, start)
    seconds = []
    for shard in np.linspace(0, num_shards - 1, min(num_shards, MAX_TIMED)).round().astype(int):
        begin = time.perf_counter()
        sampler.run(
            target.shard_cache.density(shard),
            start,
            jax.random.fold_in(key, shard),
            size.num_draws,
            thin=thinning(sampler, size),
        )
        seconds.append(time.perf_counter() - begin)
    return np.array(seconds)


class Apart(Target):
    """A target as if every shard had a machine of its own: shards are evaluated one after the other, and all seconds but the slowest's saved."""

    saved = 0.0

    def __call__(self, points: Any, only: Sequence[int] | None = None) -> tuple[Any, Any]:
        chosen = range(self.num_shards) if only is None else only
        parts = self._each(lambda shard: evaluate(self.shard_cache.density(shard), points), chosen)
        scale = self.num_shards / len(chosen)
        values, scores = (np.sum(each, axis=0) for each in zip(*parts, strict=True))
        return jnp.asarray(scale * values), jnp.asarray(scale * scores)

    def hessian_products(self, point: Any, directions: Any) -> Any:
        every = range(self.num_shards)
        parts = self._each(
            lambda shard: (hessian_products(self.shard_cache.density(shard), point, directions),),
            every,
        )
        return jnp.asarray(np.sum([part for (part,) in parts], axis=0))

    def _each(
        self, function: Callable[[int], tuple[Any, ...]], shards: Sequence[int]
    ) -> list[tuple[Any, ...]]:
        seconds, results = [], []
        for shard in shards:
            begin = time.perf_counter()
            results.append(tuple(np.asarray(part) for part in function(shard)))
            seconds.append(time.perf_counter() - begin)
        self.saved += sum(seconds) - max(seconds)
        return results


def _combining(trial: Trial, method: str, num_shards: int) -> Step:
    make = partial(combined, trial, method, num_shards)
    return Step(f"{method}-{num_shards}", f"{trial.name}-{method}", make, _folder(trial))


def combined(trial: Trial, method: str, num_shards: int) -> Arrays:
    """The error of a method, and its seconds: the first time, the second time, and with rows apart."""
    chosen = trial.methods[method]
    shards = trial.subposteriors(num_shards, chosen.as_paper)
    first, _ = timed(chosen.combiner, shards)
    again, found = timed(chosen.combiner, shards)
    error = trial.median_error(found.draws)
    target = trial.target(num_shards)
    apart = Apart(target.model, target.shard_cache.partition, Local())
    timed(chosen.combiner, replace(shards, target=apart))
    apart.saved = 0.0
    whole, _ = timed(chosen.combiner, replace(shards, target=apart))
    return {
        "error": error,
        "seconds_first": first,
        "seconds": again,
        "seconds_apart": whole - apart.saved,
    }


EXPERIMENT = SpeedUp()
