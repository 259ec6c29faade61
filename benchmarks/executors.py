"""Time executors: overhead of one evaluation, sampling in one and two processes, and overlap.

Run on an idle machine: .venv/bin/python benchmarks/executors.py    (some minutes)
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import say

import vcmc
from vcmc.data.cache import ShardCache, Task
from vcmc.executors import AbstractExecutor, Dask, Local, Processes, Ray
from vcmc.inference.chains import Plan, sample_shards
from vcmc.progress import ProgressDisplay
from vcmc.target import Target

NUM_SHARDS, ROWS_PER_SHARD, DIM = 20, 5000, 300
NUM_ROUNDS = 200  # evaluations whose median is taken


@contextmanager
def dask(num_workers: int = 2) -> Iterator[Dask]:
    """Yield a cluster on this machine."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=num_workers, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield Dask(client)


@contextmanager
def ray(num_actors: int = 2) -> Iterator[Ray]:
    """Yield actors on this machine."""
    import ray as module

    module.init(num_cpus=num_actors, include_dashboard=False, log_to_driver=False)
    yield Ray(num_slots=num_actors)
    module.shutdown()


@contextmanager
def local() -> Iterator[Local]:
    yield Local()


EXECUTORS: dict[str, Callable[[], Any]] = {
    "Local()": local,
    "Processes(2)": lambda: Processes(2),
    "Dask, two workers": dask,
    "Ray, two actors": ray,
}


def no_work(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], points: np.ndarray
) -> Any:
    """Return zeros in the shapes of an evaluation."""
    del shard_cache, task, advance
    return np.zeros(len(points)), np.zeros(points.shape)


def rounds() -> None:
    say(
        f"## Evaluation: {NUM_SHARDS} shards of {ROWS_PER_SHARD} x {DIM}, one point, two slots; "
        f"median of {NUM_ROUNDS}, ms"
    )
    say("| executor | start and first evaluation, s | without work | with scores |")
    say("|---|---|---|---|")
    model = vcmc.models.Logistic(DIM)
    rows = model.simulate(0, NUM_SHARDS * ROWS_PER_SHARD).rows
    partition = vcmc.split(rows, NUM_SHARDS)
    point = jnp.zeros((1, DIM))
    for name, make in EXECUTORS.items():
        begin = time.perf_counter()
        with make() as executor:
            target = Target(model, partition, executor)
            target(point)
            first = time.perf_counter() - begin
            tasks = [Task((shard,)) for shard in range(NUM_SHARDS)]
            work = partial(no_work, points=np.zeros((1, DIM)))
            idle = _milliseconds(lambda: list(executor.map(work, tasks, target.shard_cache)))  # noqa: B023
            busy = _milliseconds(lambda: target(point), 50)  # noqa: B023
        say(f"| {name} | {first:.1f} | {idle:.2f} | {busy:.1f} |")


def _milliseconds(function: Callable[[], Any], repeats: int = NUM_ROUNDS) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


def sampling() -> None:
    say()
    say(
        "## Sampling: logistic regression, 16 shards of 5 000 x 50, NUTS, 200 + 400 steps; seconds "
        "without start and compilation"
    )
    say("| executor | first run | second | third | one process / this |")
    say("|---|---|---|---|---|")
    model = vcmc.models.Logistic(50)
    partition = vcmc.split(model.simulate(0, 80_000).rows, 16)
    shard_cache = ShardCache(model, partition)
    seconds: dict[str, list[float]] = {}
    with Processes(1) as one, Processes(2) as two:
        executors: dict[str, AbstractExecutor] = {
            "Processes(1)": one,
            "Processes(2)": two,
            "Local()": Local(),
        }
        for executor in executors.values():
            _sample(executor, shard_cache, 50)
        for _ in range(3):  # in turns
            for name, executor in executors.items():
                seconds.setdefault(name, []).append(_sample(executor, shard_cache, 400))
    base = statistics.median(seconds["Processes(1)"])
    for name, values in seconds.items():
        cells = " | ".join(f"{value:.2f}" for value in values)
        say(f"| {name} | {cells} | {base / statistics.median(values):.2f} |")


def _sample(executor: AbstractExecutor, shard_cache: ShardCache, num_draws: int) -> float:
    plan = Plan(
        vcmc.samplers.NUTS(num_warmup=200),
        np.zeros(50),
        np.asarray(jax.random.key_data(jax.random.key(0))),
        num_draws,
        1,
        1 / shard_cache.num_shards,
        1.0,
    )
    begin = time.perf_counter()
    sample_shards(executor, shard_cache, plan, ProgressDisplay(False).stage("sample", None))
    return time.perf_counter() - begin


def overlapping() -> None:
    say()
    say(
        "## Overlap: probit regression, 40 shards of 2 500 x 100, two processes; seconds of a "
        "second run, everything compiled"
    )
    say(
        "| | whole run | from the last draw to the weights | iterations | "
        "largest estimated error, sds |"
    )
    say("|---|---|---|---|---|")
    model = vcmc.models.Probit(100)
    rows = model.simulate(0, 100_000, {"beta": np.random.default_rng(0).normal(size=100) / 10}).rows
    with Processes(2) as executor:
        for _ in range(2):
            lines = [_run(model, rows, executor, overlap) for overlap in (False, True)]
    for line in lines:
        say(line)


def _run(model: vcmc.Model, rows: Any, executor: AbstractExecutor, overlap: bool) -> str:
    begin = time.perf_counter()
    tree = vcmc.infer(model, rows, num_shards=40, thin=5, executor=executor, overlap=overlap)
    whole = time.perf_counter() - begin
    seconds = tree.attrs
    last = float(tree["sample_seconds"]["end"].max())
    after = seconds["seconds_sample"] - last + seconds["seconds_check"] + seconds["seconds_combine"]
    error = float(np.abs(tree["mean_error"]["beta"]).max())
    iterations = len(tree["optimization"]["objective"])
    return f"| overlap={overlap} | {whole:.1f} | {after:.2f} | {iterations} | {error:.3f} |"


if __name__ == "__main__":
    rounds()
    sampling()
    overlapping()
