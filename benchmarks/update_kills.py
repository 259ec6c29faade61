"""Kill updates of a run directory by SIGKILL, at random moments, and let the same call go on.

Each update runs in a process of its own, which is killed after a random share of the time that an
undisturbed one takes, again and again until one ends. After every kill, the run directory must load
the last good state; in the end, the draws must be those of an undisturbed update, to the last bit.

Run: .venv/bin/python benchmarks/update_kills.py [--kills 20]    (a quarter of an hour)
"""

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
from timing import say

import vcmc
from vcmc.testing.gaussians import regression

MAX_SECONDS = 300.0  # of an update
NUM_UPDATES = 3


def parts() -> list[dict[str, np.ndarray]]:
    """Return the rows of the first run, and of each update."""
    rows = regression().rows
    bounds = [0, 400, 600, 800, 1003]
    return [
        {name: array[begin:end] for name, array in rows.items()} for begin, end in pairwise(bounds)
    ]


def digest(folder: Path) -> str:
    """Return a checksum of the draws of the current state."""
    tree = vcmc.load(folder)
    draws = [tree[group]["beta"].to_numpy().tobytes() for group in ("posterior", "subposterior")]
    return hashlib.sha256(b"".join(draws)).hexdigest()


def update(folder: Path, number: int) -> None:
    """Make one update, in this process."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_compilation_cache_dir", str(folder.parent / "cache"))
    vcmc.update(folder, regression().model, parts()[number], num_shards=2, progress=False)


def run(folder: Path, number: int, kill_after: float | None) -> tuple[bool, float]:
    """Make an update in a process of its own; return whether it ended, and its seconds."""
    begin = time.monotonic()
    command = [sys.executable, __file__, "--update", str(number), "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=kill_after or MAX_SECONDS)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
        if kill_after is None:
            sys.exit(f"update {number} did not end within {MAX_SECONDS} seconds")
        return False, time.monotonic() - begin
    if process.returncode:
        sys.exit(f"update {number} failed:\n{errors.decode()}")
    return True, time.monotonic() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--update", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.update is not None:
        update(arguments.folder, arguments.update)
        return
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        original, calm = Path(name) / "original", Path(name) / "calm"
        problem = regression()
        vcmc.infer(problem.model, parts()[0], num_shards=3, store=original, progress=False)
        shutil.copytree(original, calm)
        states, seconds = [digest(calm)], []
        for number in range(1, NUM_UPDATES + 1):
            seconds.append(run(calm, number, None)[1])
            states.append(digest(calm))
        kills = wrong = 0
        while kills < arguments.kills:
            folder = Path(name) / "killed"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(original, folder)
            for number in range(1, NUM_UPDATES + 1):
                is_ended = False
                while not is_ended:
                    share = generator.uniform(0.2, 1.0) if kills < arguments.kills else None
                    after = None if share is None else share * seconds[number - 1]
                    is_ended, _ = run(folder, number, after)
                    kills += not is_ended
                    wrong += digest(folder) not in states[number - 1 : number + 1]
                wrong += digest(folder) != states[number]
        say(f"{kills} kills during updates; {wrong} states that were not the last good one")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
