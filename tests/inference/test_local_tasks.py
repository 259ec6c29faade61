"""Local draws survive kills: of the driver, whose run is resumed, and of processes that draw."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import vcmc
from vcmc.inference.local_tasks import groups_at_once
from vcmc.testing.gaussians import varying_means

SETTINGS = {"num_shards": 4, "shard_draws": 100, "num_draws": 600, "progress": False}
MAX_SECONDS = 300

KILLED = """
import os, signal, sys
import vcmc
from vcmc.inference import local_tasks
from vcmc.testing.gaussians import varying_means

original, count = local_tasks.draw_locals, 0

def draw_locals(*arguments):
    global count
    count += 1
    if count == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)

local_tasks.draw_locals = draw_locals
model, rows = varying_means()
executor = vcmc.executors.Local(num_threads=1)
vcmc.infer(model, rows, store=sys.argv[1], locals=sys.argv[2], executor=executor, **{settings})
"""


@pytest.fixture(scope="module")
def expected():
    return vcmc.infer(*varying_means(), **SETTINGS)["posterior"]["alpha"]


def run_killed(store: Path, mode: str, calls: int) -> int:
    """Run in a process that is killed when it draws for the given time; return its exit code."""
    code = KILLED.replace("{settings}", repr(SETTINGS))
    command = [sys.executable, "-c", code, str(store), mode, str(calls)]
    return subprocess.run(command, timeout=MAX_SECONDS, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["draws", "file"])
def test_a_killed_run_goes_on_with_the_shards_that_are_left(mode, tmp_path, expected, monkeypatch):
    if mode == "file":
        pytest.importorskip("pyarrow")
    assert run_killed(tmp_path, mode, calls=3) == -signal.SIGKILL
    suffix = "parquet" if mode == "file" else "npz"
    files = [tmp_path / "locals" / f"{shard:05}.{suffix}" for shard in range(4)]
    assert [file.exists() for file in files] == [True, True, False, False]
    times = [file.stat().st_mtime_ns for file in files[:2]]
    written = []
    original = vcmc.results.local_files.LocalsFolder.save

    def save(folder, shard, identity, part):
        written.append(shard)
        return original(folder, shard, identity, part)

    monkeypatch.setattr("vcmc.results.local_files.LocalsFolder.save", save)
    tree = vcmc.infer(*varying_means(), store=tmp_path, locals=mode, **SETTINGS)
    assert sorted(written) == [2, 3]
    if mode == "file":
        assert [file.stat().st_mtime_ns for file in files[:2]] == times
        assert (vcmc.load_locals(tmp_path)["alpha"] == expected).all()
        np.testing.assert_allclose(tree["local_mean"]["alpha"], expected.mean(("chain", "draw")))
    else:
        assert (tree["posterior"]["alpha"] == expected).all()
        assert not any(file.exists() for file in files)  # the result has them


@pytest.mark.slow
def test_a_process_that_is_lost_while_it_draws_is_replaced(tmp_path, expected):
    pytest.importorskip("pyarrow")
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    killed = []

    def kill_one():
        while not list((tmp_path / "locals").glob("*.json")):
            time.sleep(0.01)
        workers = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
        busiest = max(workers, key=lambda worker: worker.memory_info().rss)
        if not (tmp_path / "locals" / "index.npz").exists():
            os.kill(busiest.pid, signal.SIGKILL)
            killed.append(busiest.pid)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    with vcmc.executors.Processes(2) as executor:
        arguments = {"store": tmp_path, "locals": "file", "executor": executor}
        vcmc.infer(*varying_means(), **arguments, **SETTINGS)
    thread.join(MAX_SECONDS)
    assert killed
    assert (vcmc.load_locals(tmp_path)["alpha"] == expected).all()


def test_groups_are_drawn_at_once_as_memory_allows():
    assert groups_at_once(num_points=5000, dim=1) == 2**26 // 40_000
    assert groups_at_once(num_points=10**8, dim=10) == 1
