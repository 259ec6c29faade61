"""Measure one point, in a process of its own: `python measure.py SWEEP VALUE QUICK FILE`."""

import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parent))  # for groups.py and executors.py

import executors as clusters  # noqa: E402
import workloads  # noqa: E402
from check import checked_network  # noqa: E402
from costs import Workers, own_costs  # noqa: E402
from workloads import Workload  # noqa: E402

import vcmc  # noqa: E402
from vcmc.executors import Processes  # noqa: E402

NUM_PROCESSES = 2


def timed_run(
    workload: Workload, opened: AbstractContextManager[Any], prepare_seconds: float = 0.0
) -> dict[str, Any]:
    """Run `infer` as it comes, and return its seconds by stage and its memory by process."""
    begin = time.perf_counter()
    with opened as executor:
        workers = Workers(executor)
        started = time.perf_counter() - begin
        before = time.process_time()
        begin = time.perf_counter()
        tree = vcmc.infer(
            workload.model,
            workload.rows,
            num_shards=workload.num_shards,
            executor=executor,
            locals=workload.locals_mode,
            progress=False,
            compile_cache=False,
        )
        seconds = time.perf_counter() - begin
        driver_cpu = time.process_time() - before
        workers_cpu = workers.cpu_seconds()
        peaks = [costs.peak_mb for costs in workers.costs()]
    return {
        "seconds": seconds + prepare_seconds,
        "seconds_processes": started,
        "cpu_driver": driver_cpu,
        "cpu_workers": workers_cpu,
        "peak_driver_mb": own_costs().peak_mb,
        "peak_workers_mb": peaks,
        "stages": stages_of(tree, seconds)
        | ({"split": prepare_seconds} if prepare_seconds else {}),
        "num_shards": int(tree.attrs["num_shards"]),
        "shard_draws": int(tree["subposterior"].sizes["draw"]),
        "verdict": tree.attrs["verdict"],
    }


def stages_of(tree: Any, seconds: float) -> dict[str, float]:
    """Return the seconds of each stage; `other` is what no stage has, e.g. splitting rows."""
    stages = {
        name.removeprefix("seconds_"): float(value)
        for name, value in tree.attrs.items()
        if name.startswith("seconds_")
    }
    return stages | {"other": seconds - sum(stages.values())}


def rows(num_rows: int) -> dict[str, Any]:
    """Measure a run on a Parquet file, which another process has written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            pool.submit(workloads.write_rows, path, num_rows).result()
        begin = time.perf_counter()
        partition = vcmc.split(
            path, workloads.ROW_SHARDS, columns=workloads.COLUMNS, folder=f"{folder}/shards"
        )
        splitting = time.perf_counter() - begin
        workload = Workload(vcmc.models.Logistic(workloads.DIM), partition)
        return timed_run(workload, Processes(NUM_PROCESSES), splitting)


def on_executor(name: str) -> dict[str, Any]:
    """Measure a run on an executor with a number of workers, e.g. `Dask(2)`."""
    kind, number = re.fullmatch(r"(\w+)\((\d+)\)", name).groups()  # type: ignore[union-attr]
    make = {"Processes": Processes, "Dask": clusters.dask, "Ray": clusters.ray}[kind]
    opened = make(int(number))
    workload = workloads.logistic(
        workloads.EXECUTOR_ROWS, workloads.EXECUTOR_DIM, workloads.EXECUTOR_SHARDS
    )
    return timed_run(workload, opened)


def measured(sweep: str, value: str, is_quick: bool) -> dict[str, Any]:
    """Measure a point of a sweep."""
    if sweep == "rows":
        return rows(int(value))
    if sweep == "executors":
        return on_executor(value)
    if sweep == "network":
        return checked_network(value, is_quick)
    make = {
        "shards": workloads.rows_in_shards,
        "coordinates": workloads.crossed_levels,
        "groups": workloads.groups,
    }[sweep]
    return timed_run(make(int(value)), Processes(NUM_PROCESSES))


def main() -> None:
    sweep, value, quick, path = sys.argv[1:]
    warnings.simplefilter("ignore")
    load = os.getloadavg()[0]
    record = measured(sweep, value, quick == "True")
    record |= {"load_before": load, "load_after": os.getloadavg()[0], "vcmc": vcmc.__version__}
    part = Path(path).with_suffix(".part")
    part.write_text(json.dumps(record, indent=1))
    part.replace(path)


if __name__ == "__main__":
    main()
