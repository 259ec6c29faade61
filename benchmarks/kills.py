"""Kill a run at twenty random times, and check that its draws do not change.

The driver or one of its processes is killed with SIGKILL, and the run is resumed. The final draws
must be bit-identical to those of an undisturbed run, with every block stored once.

Run: .venv/bin/python benchmarks/kills.py    (several minutes)
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from timing import say

import vcmc

NUM_KILLS = 20
SCRIPT = """
import sys
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
import vcmc

model = vcmc.models.Logistic(20)
rows = model.simulate(0, 40_000).rows
vcmc.infer(
    model,
    rows,
    num_shards=16,
    num_draws=2000,
    store=sys.argv[1],
    executor=vcmc.executors.Processes(2),
    progress=False,
)
"""


def command(folder: Path, cache: Path) -> list[str]:
    return [sys.executable, "-c", SCRIPT, str(folder), str(cache)]


def children(pid: int) -> list[int]:
    output = subprocess.run(
        ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return [int(word) for word in output.split()]


def num_blocks(folder: Path) -> int:
    return sum(1 for _ in (folder / "draws").glob("*/?????.npz"))


def main(folder: Path) -> None:
    cache, whole, killed = folder / "cache", folder / "whole", folder / "killed"
    begin = time.perf_counter()
    subprocess.run(command(whole, cache), check=True)
    say(f"undisturbed run: {time.perf_counter() - begin:.1f} s, {num_blocks(whole)} blocks")
    generator = random.Random(0)
    kills = {"driver": 0, "process": 0}
    runs = 1
    process = subprocess.Popen(command(killed, cache))
    while sum(kills.values()) < NUM_KILLS:
        kind = generator.choice(list(kills))
        if kind == "process":  # the driver starts without any
            while process.poll() is None and not children(process.pid):
                time.sleep(0.01)
        time.sleep(generator.uniform(0.5, 12.0))
        if process.poll() is not None:
            if process.returncode == 0:
                say(
                    f"run {runs} finished after {sum(kills.values())} kills; its result and a "
                    "third of its blocks are deleted"
                )
                for path in [
                    *killed.glob("tree.*"),
                    *sorted((killed / "draws").glob("*/?????.npz"))[::3],
                ]:
                    path.unlink()
            process = subprocess.Popen(command(killed, cache))
            runs += 1
            continue
        victim = (
            generator.choice(children(process.pid) or [process.pid])
            if kind == "process"
            else process.pid
        )
        before = num_blocks(killed)
        os.kill(victim, signal.SIGKILL)
        kills[kind] += 1
        say(f"kill {sum(kills.values())}: {kind}, at {before} blocks")
        if kind == "driver":
            process.wait()
    if process.wait():
        subprocess.run(command(killed, cache), check=True)
        runs += 1
    one, other = vcmc.load(whole), vcmc.load(killed)
    same = all(
        np.array_equal(one[group][name], other[group][name])
        for group in ("posterior", "subposterior", "sample_stats")
        for name in one[group].data_vars
    )
    say(
        f"{kills['driver']} drivers and {kills['process']} processes killed, {runs} runs: "
        f"bit-identical draws: {same}; blocks: {num_blocks(killed)} of {num_blocks(whole)}"
    )
    sys.exit(0 if same and num_blocks(killed) == num_blocks(whole) else 1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
