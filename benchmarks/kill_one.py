"""One run of `kills.py`: a run during which something is killed; not a benchmark itself.

Nothing is killed by a timer. A kill is triggered by what has happened: workers have been listed, a
slot has been asked for, the message of a stage is being served, a program was compiled, a block of
a chain was drawn. In a worker, the killer is a function around the work, so that the process dies
with the message in its hands.

Run: .venv/bin/python benchmarks/kill_one.py EXECUTOR VICTIM STAGE FOLDER
"""

import hashlib
import inspect
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import psutil

import vcmc
from vcmc.errors import SlotLost
from vcmc.executors import AbstractExecutor, dask, processes, ray
from vcmc.executors.base import no_progress
from vcmc.executors.slots import AbstractSlots
from vcmc.testing.gaussians import regression

# The limits of the executors, shortened: a cluster that is gone is given up after 20 seconds.
LIMIT_SECONDS = 20.0
STAGES = {  # by the function of vcmc that sends the message
    "checks": "shard_facts",
    "start": "common_start",
    "compile": "sample_shards",
    "sampling": "sample_shards",
    "optimiser round": "combine_shards",
    "refinement": "refine_draws",
    "diagnosis": "assess",
}
ARGUMENTS: dict[str, Any] = {
    "num_shards": 5,
    "num_draws": 300,
    "sampler": vcmc.samplers.NUTS(num_warmup=100),
    "refine": True,
    "progress": False,
}


def kill_once(marker: str, pids: list[int]) -> None:
    """Kill processes, unless this was done before; 0 is this process, and comes last."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    own = os.getpid()
    for pid in sorted((pid or own for pid in pids), key=lambda pid: pid == own):
        os.kill(pid, signal.SIGKILL)


def work_and_kill(
    shard_cache: Any,
    task: Any,
    advance: Callable[[int], None],
    work: Callable[..., Any],
    stage: str,
    kill: Callable[[], None],
) -> Any:
    """Do the work of a task, in any process, and kill at the stage's moment."""
    if stage == "compile":

        def listen(event: str, *_: Any, **__: Any) -> None:
            if "backend_compile" in event:
                kill()

        jax.monitoring.register_event_duration_secs_listener(listen)
    elif stage == "sampling":
        report = advance

        def advance(steps: int) -> None:
            report(steps)
            if steps:
                kill()
    else:
        kill()
    return work(shard_cache, task, advance)


class Killing(AbstractExecutor):
    """An executor whose messages of one stage kill something, once.

    Args:
        executor: the executor.
        stage: the stage.
        pids: returns the processes to kill; its argument says whether this is asked in a worker,
            where 0 stands for the worker itself.
        marker: the file that records the kill.
    """

    def __init__(
        self,
        executor: AbstractSlots,
        stage: str,
        pids: Callable[[bool], list[int]],
        marker: Path,
    ):
        self.executor, self.stage, self.pids, self.marker = executor, stage, pids, str(marker)

    def kill(self) -> None:
        """Kill from the driver."""
        kill_once(self.marker, self.pids(False))

    def kill_after(self, owner: Any, name: str) -> None:
        """Kill after a function of the driver was called."""
        function = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            self.kill()
            return result

        setattr(owner, name, call)

    def outcomes(
        self,
        work: Any,
        tasks: Any,
        shard_cache: Any,
        advance: Callable[[int], None] = no_progress,
        one_by_one: bool = False,
    ) -> Iterator[Any]:
        callers = {frame.function for frame in inspect.stack(context=0)}
        if STAGES.get(self.stage) in callers and not Path(self.marker).exists():
            self.executor._open()
            kill = partial(kill_once, self.marker, self.pids(True))
            work = partial(work_and_kill, work=work, stage=self.stage, kill=kill)
        return self.executor.outcomes(work, tasks, shard_cache, advance, one_by_one)

    def close(self) -> None:
        if self.stage == "closing":
            self.kill()
        self.executor.close()


Victims = dict[str, Callable[[bool], list[int]]]


@contextmanager
def processes_and_victims(folder: Path) -> Iterator[tuple[AbstractSlots, Victims]]:
    del folder
    executor = processes.Processes(2)

    def both(in_worker: bool) -> list[int]:
        del in_worker
        # while slots are being opened, the executor does not know them yet
        return [child.pid for child in psutil.Process().children()]

    yield (
        executor,
        {
            "process": lambda in_worker: [0] if in_worker else both(False)[:1],
            "both processes": both,
            "driver": lambda _: [os.getpid()],
        },
    )


@contextmanager
def dask_and_victims(folder: Path) -> Iterator[tuple[AbstractSlots, Victims]]:
    from distributed import Client

    file = f"--scheduler-file={folder / 'scheduler.json'}"
    start = [sys.executable, "-m"]
    quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "cwd": folder}
    scheduler = subprocess.Popen(
        [*start, "distributed.cli.dask_scheduler", file, "--port=0", "--no-dashboard"], **quiet
    )
    worker = [*start, "distributed.cli.dask_worker", file, "--nthreads=1", "--no-nanny"]
    workers = [subprocess.Popen([*worker, "--no-dashboard"], **quiet) for _ in range(2)]
    pids = [process.pid for process in workers]
    try:
        client = Client(scheduler_file=str(folder / "scheduler.json"), timeout=LIMIT_SECONDS)
        client.wait_for_workers(2, timeout=60)
        yield (
            dask.Dask(client),
            {
                "worker": lambda in_worker: [0] if in_worker else pids[:1],
                "both workers": lambda _: pids,
                "scheduler": lambda _: [scheduler.pid],
            },
        )
        client.close(timeout=5)
    finally:
        for process in [*workers, scheduler]:
            process.kill()


@contextmanager
def ray_and_victims(folder: Path) -> Iterator[tuple[AbstractSlots, Victims]]:
    import ray as module

    del folder
    module.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    raylet = next(
        process for process in psutil.Process().children(True) if process.name() == "raylet"
    )

    def actor() -> list[int]:
        for child in raylet.children(True):
            with suppress(psutil.Error):  # it has just ended
                if "ray::Server" in " ".join(child.cmdline()):
                    return [child.pid]
        return []

    try:
        yield (
            ray.Ray(num_slots=2),
            {
                "actor": lambda in_worker: [0] if in_worker else actor(),
                "raylet": lambda _: [raylet.pid],
            },
        )
    finally:
        module.shutdown()


@contextmanager
def futures_and_victims(folder: Path) -> Iterator[tuple[AbstractSlots, Victims]]:
    del folder
    pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    yield (
        vcmc.executors.Futures(pool),
        {"process": lambda in_worker: [0] if in_worker else list(pool._processes)[:1]},
    )
    # Python 3.11 waits forever in `shutdown` if the process that was killed held the queue's lock
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False)


# How to make each executor, and its functions that list workers and that start a slot.
EXECUTORS: dict[str, tuple[Any, Any, Any]] = {
    "Processes": (processes_and_victims, None, (processes.ProcessSlot, "renew")),
    "Dask": (dask_and_victims, (dask, "worker_addresses"), (dask.DaskSlot, "submit")),
    "Ray": (ray_and_victims, (ray, "free_cores"), (ray.RaySlot, "wait_until_started")),
    "Futures": (futures_and_victims, None, None),
}


def infer(executor: AbstractExecutor | None, folder: Path) -> str:
    """Run, and return a checksum of all draws."""
    problem = regression()
    tree = vcmc.infer(
        problem.model, problem.rows, executor=executor, store=folder / "run", **ARGUMENTS
    )
    draws = [tree[group]["beta"].to_numpy() for group in ("posterior", "subposterior")]
    return hashlib.sha256(b"".join(part.tobytes() for part in draws)).hexdigest()


def run(name: str, victim: str, stage: str, folder: Path) -> dict[str, Any]:
    """Run once with a kill; after an error, resume the run in this process."""
    make, listing, start = EXECUTORS[name]
    result: dict[str, Any] = {"error": ""}
    with make(folder) as (executor, victims):
        killing = Killing(executor, stage, victims[victim], folder / "killed")
        if moment := {"listing": listing, "start of slots": start}.get(stage):
            killing.kill_after(*moment)
        begin = time.monotonic()
        try:
            result["digest"] = infer(killing, folder)
        except vcmc.ShardError as error:
            result["error"] = f"{type(error).__name__}: {error}"
            result["is_loss"] = isinstance(error.__cause__, SlotLost)
            result["has_draws"] = error.tree is not None
        killing.close()
        result["seconds"] = time.monotonic() - begin
    result["num_blocks"] = len(list((folder / "run" / "draws").glob("*/?????.npz")))
    if result["error"]:
        result["digest"] = infer(None, folder)
    return result | {"is_killed": (folder / "killed").exists()}


def main(name: str, victim: str, stage: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_compilation_cache_dir", str(Path(folder).parent / "cache"))
    dask.WORKER_TIMEOUT = ray.CORE_TIMEOUT = LIMIT_SECONDS
    if name == "Local":
        result: dict[str, Any] = {"digest": infer(None, Path(folder))}
    else:
        result = run(name, victim, stage, Path(folder))
    (Path(folder) / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
