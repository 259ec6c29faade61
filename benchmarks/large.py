"""Time and memory of a run on Parquet files of 10^4 to 10^7 rows × 20 columns, in 64 shards.

Run on an idle machine with 5 GB of free disk (about ten minutes; 10^7 rows take most of it):

    .venv/bin/python benchmarks/large.py [FOLDER [EXPONENT ...]]
"""

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from timing import say

import vcmc
from vcmc.data.cache import ShardCache, Task
from vcmc.data.files import batches
from vcmc.executors import Processes

DIM, NUM_SHARDS = 19, 64
NUM_DRAWS, SAMPLER = 100, vcmc.samplers.NUTS(num_warmup=100, target_accept=0.7)
EXPONENTS = [int(word) for word in sys.argv[2:]] or [4, 5, 6, 7]
COLUMNS = {"x": [f"x{j}" for j in range(DIM)], "y": "y"}


class CountingProcesses(Processes):
    """Processes that count messages and bytes by operation."""

    def __init__(self, num_processes: int):
        super().__init__(num_processes)
        self.counts: dict[str, np.ndarray] = {}

    def outcomes(self, work: Any, *arguments: Any, **options: Any) -> Any:
        count = self.counts.setdefault(getattr(work, "func", work).__name__, np.zeros(3))
        for slot in self._open():
            slot.call = partial(_counted, type(slot).call, slot, count)  # type: ignore[method-assign]
        return super().outcomes(work, *arguments, **options)


def _counted(call: Any, slot: Any, count: np.ndarray, message: bytes, advance: Any) -> bytes:
    reply = call(slot, message, advance)
    count += [1, len(message), len(reply)]
    return reply


def peak_memory(shard_cache: ShardCache, task: Task, advance: Callable[[int], None]) -> float:
    """Return the peak memory of a process in MB."""
    del shard_cache, task, advance
    return _peak()


def _peak() -> float:
    """Return this process's peak memory in MB; that of `getrusage` includes its parent's."""
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) / 1024


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process, whose memory does not count."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def write(path: Path, num_rows: int) -> None:
    """Write rows of a logistic regression, sorted by the first covariate, as files often are."""
    generator = np.random.default_rng(0)
    beta = np.linspace(-1, 1, DIM) / 2
    schema = pa.schema([(name, pa.float64()) for name in [*COLUMNS["x"], "y"]])
    size = 250_000
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, num_rows, size):
            count = min(size, num_rows - first)
            x = generator.normal(size=(count, DIM))
            x[:, 0] = np.linspace(-2, 2, num_rows)[first : first + count]
            y = (x @ beta + generator.logistic(size=count) > 0).astype(float)
            writer.write_table(pa.table([*x.T, y], schema=schema))


def read(path: Path) -> float:
    """Return the seconds of one pass over a file."""
    begin = time.perf_counter()
    for _ in batches(path):
        pass
    return time.perf_counter() - begin


def main(folder: Path) -> None:
    say(
        f"## Logistic regression on Parquet, {DIM} covariates, K={NUM_SHARDS}, Processes(2), "
        "100 + 100 steps"
    )
    say(
        "| rows | file, MB | one pass, s | splitting, s | check, start, s | sampling, s | "
        "µs per draw and 1000 rows | combining, s | diagnosis, s | shard, MB | "
        "peak of a process, MB | limit | of the driver | verdict |"
    )
    say("|" + "---|" * 14)
    model = vcmc.models.Logistic(DIM)
    for exponent in EXPONENTS:
        num_rows = 10**exponent
        path = folder / f"rows-{exponent}.parquet"
        if not path.exists():
            elsewhere(write, path, num_rows)
        one_pass = elsewhere(read, path)
        begin = time.perf_counter()
        partition = vcmc.split(
            path, NUM_SHARDS, columns=COLUMNS, folder=folder / f"dealt-{exponent}"
        )
        splitting = time.perf_counter() - begin
        with CountingProcesses(2) as executor:
            tree = vcmc.infer(
                model, partition, shard_draws=NUM_DRAWS, sampler=SAMPLER, executor=executor
            )
            tasks = [Task((shard,)) for shard in (0, NUM_SHARDS - 1)]
            peaks = list(executor.map(peak_memory, tasks, ShardCache(model, partition)))
        seconds = tree.attrs
        shard = num_rows / NUM_SHARDS * 8 * (DIM + 2) / 2**20
        sampling = seconds["seconds_sample"] + seconds["seconds_compile"]
        per_draw = (
            1e6
            * seconds["seconds_sample"]
            * 2
            / (NUM_SHARDS * (NUM_DRAWS + SAMPLER.num_warmup))
            / (num_rows / NUM_SHARDS / 1000)
        )
        say(
            f"| 10^{exponent} | {path.stat().st_size / 2**20:.0f} | {one_pass:.1f} | "
            f"{splitting:.1f} | {seconds['seconds_start']:.1f} | {sampling:.1f} | {per_draw:.1f} | "
            f"{seconds['seconds_combine']:.1f} | {seconds['seconds_diagnose']:.1f} | {shard:.1f} | "
            f"{max(peaks):.0f} | {2 * shard + 1024:.0f} | {_peak():.0f} | {tree.attrs['verdict']} |"
        )
    say()
    say("Messages to and from the two processes in the last run, by operation:")
    say("| | messages | MB sent | MB received |")
    say("|---|---|---|---|")
    for name, (messages, sent, received) in executor.counts.items():
        say(f"| `{name}` | {messages:.0f} | {sent / 2**20:.2f} | {received / 2**20:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
