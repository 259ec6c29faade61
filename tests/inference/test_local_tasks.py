"""Local draws in blocks and in files, also after kills of the driver or of processes that draw."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import vcmc
from vcmc.inference.local_tasks import groups_at_once
from vcmc.results.local_files import LocalsFolder
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


# chains are short
pytestmark = pytest.mark.filterwarnings("ignore::vcmc.errors.DoubtfulWarning")


@pytest.fixture(scope="module")
def expected():
    return vcmc.infer(*varying_means(), **SETTINGS)["posterior"]["alpha"]


def run(**changed):
    return vcmc.infer(*varying_means(), **(SETTINGS | changed))


@pytest.fixture
def few_groups_at_once(monkeypatch):
    """Blocks of three groups."""
    monkeypatch.setattr("vcmc.inference.local_tasks.MAX_BLOCK_BYTES", 3 * 8 * 600 * 2)


def test_draws_in_files_are_those_of_a_result(expected, tmp_path):
    pytest.importorskip("pyarrow")
    store = tmp_path / "run"
    tree = run(store=store, locals="file")
    assert "alpha" not in tree["posterior"]
    assert tree.attrs["local_draws"] == str(store / "locals")
    draws = vcmc.load_locals(store)["alpha"]
    assert draws.dims == expected.dims
    assert (draws == expected).all()
    some = vcmc.load_locals(store, groups=["group 07", "group 02"])
    assert (some["alpha"] == expected.sel(group=["group 07", "group 02"])).all()
    means = expected.mean(("chain", "draw"))
    np.testing.assert_allclose(tree["local_mean"]["alpha"], means, rtol=1e-12)
    np.testing.assert_allclose(tree["local_sd"]["alpha"], expected.std(("chain", "draw")))
    again = run(store=store, locals="file")
    assert again.attrs["created_at"] == tree.attrs["created_at"]


def test_a_file_that_was_deleted_is_made_again(expected, tmp_path):
    pytest.importorskip("pyarrow")
    store = tmp_path / "run"
    run(store=store, locals="file")
    files = [store / "locals" / f"{shard:05}.parquet" for shard in range(4)]
    times = [file.stat().st_mtime_ns for file in files]
    files[1].unlink()
    run(store=store, locals="file")
    assert [file.stat().st_mtime_ns == time for file, time in zip(files, times, strict=True)] == [
        True,
        False,
        True,
        True,
    ]
    assert (vcmc.load_locals(store)["alpha"] == expected).all()


@pytest.mark.usefixtures("few_groups_at_once")
def test_draws_of_many_groups_are_made_in_blocks(expected, tmp_path):
    """Other random numbers, the same distribution; and the file has those of the result."""
    pytest.importorskip("pyarrow")
    tree = run()
    run(store=tmp_path / "run", locals="file")
    draws = vcmc.load_locals(tmp_path / "run")["alpha"]
    assert (draws == tree["posterior"]["alpha"]).all()
    sds = expected.std(("chain", "draw"))
    difference = (draws.mean(("chain", "draw")) - expected.mean(("chain", "draw"))) / sds
    # 600 draws each, the same global ones: 4.5 standard errors of a difference for 48 means
    assert abs(difference).max() < 4.5 * np.sqrt(2 / 600)


def test_a_run_with_other_draws_leaves_no_old_files(tmp_path):
    pytest.importorskip("pyarrow")
    store = tmp_path / "run"
    run(store=store, locals="file")
    tree = run(store=store, locals="draws")
    assert "local_draws" not in tree.attrs
    assert not list((store / "locals").glob("*.parquet"))
    with pytest.raises(vcmc.StoreError, match="has no complete local draws"):
        vcmc.load_locals(store)


def test_other_labels_are_another_result(tmp_path):
    store = tmp_path / "run"
    run(store=store)
    model, rows = varying_means()
    renamed = rows | {"group": np.char.upper(rows["group"])}
    tree = vcmc.infer(model, renamed, store=store, **SETTINGS)
    assert tree["posterior"]["group"].to_numpy()[0] == "GROUP 00"


@pytest.mark.parametrize(
    "executor", [None, pytest.param(vcmc.executors.Processes(2), marks=pytest.mark.slow)]
)
def test_a_folder_that_is_not_shared_is_written_by_the_driver(
    executor, expected, tmp_path, monkeypatch
):
    """Processes look for another text than the folder has, as they would on another machine."""
    pytest.importorskip("pyarrow")
    begin = LocalsFolder.begin
    monkeypatch.setattr(LocalsFolder, "begin", lambda *arguments: begin(*arguments) + " elsewhere")
    run(store=tmp_path / "run", locals="file", executor=executor)
    assert (vcmc.load_locals(tmp_path / "run")["alpha"] == expected).all()
    assert not list((tmp_path / "run" / "locals").glob(".*"))


def test_progress_counts_local_draws(capsys):
    run(progress="lines")
    assert "local draws: done" in capsys.readouterr().err


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
    original = LocalsFolder.save

    def save(folder, shard, identity, part):
        written.append(shard)
        return original(folder, shard, identity, part)

    monkeypatch.setattr(LocalsFolder, "save", save)
    tree = vcmc.infer(*varying_means(), store=tmp_path, locals=mode, **SETTINGS)
    assert sorted(written) == [2, 3]
    if mode == "file":
        assert [file.stat().st_mtime_ns for file in files[:2]] == times
        assert (vcmc.load_locals(tmp_path)["alpha"] == expected).all()
        np.testing.assert_allclose(tree["local_mean"]["alpha"], expected.mean(("chain", "draw")))
    else:
        assert (tree["posterior"]["alpha"] == expected).all()
        assert not any(file.exists() for file in files)  # the result has them


DRIVER = """
import sys, vcmc
from vcmc.testing.gaussians import varying_means

if __name__ == "__main__":
    with vcmc.executors.Processes(2) as executor:
        arguments = {"store": sys.argv[1], "locals": "file", "executor": executor}
        vcmc.infer(*varying_means(), **arguments, **{settings})
"""


def first_begun(store: Path) -> str:
    """Wait until a file of local draws is begun, and return its temporary name."""
    limit = time.monotonic() + MAX_SECONDS
    while not (begun := list((store / "locals").glob(".*.parquet.*.new"))):
        assert time.monotonic() < limit
        time.sleep(0.005)
    return begun[0].name


@pytest.mark.slow
def test_a_driver_that_is_killed_while_its_processes_draw_is_resumed(tmp_path, expected):
    pytest.importorskip("pyarrow")
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.replace("{settings}", repr(SETTINGS)))
    store = tmp_path / "run"
    with subprocess.Popen([sys.executable, str(script), str(store)]) as driver:
        first_begun(store)
        driver.kill()
    assert not (store / "tree.npz").exists()
    run(store=store, locals="file")
    assert (vcmc.load_locals(store)["alpha"] == expected).all()


@pytest.mark.slow
def test_a_process_that_is_lost_while_it_draws_is_replaced(tmp_path, expected):
    pytest.importorskip("pyarrow")
    killed = []

    def kill_one():
        """Kill the process whose number is in the name of the first file that is begun."""
        killed.append(int(first_begun(tmp_path).split(".")[3].split("-")[0]))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    with vcmc.executors.Processes(2) as executor:
        arguments = {"store": tmp_path, "locals": "file", "executor": executor}
        vcmc.infer(*varying_means(), **arguments, **SETTINGS)
    thread.join(MAX_SECONDS)
    assert killed
    assert killed[0] != os.getpid()
    assert (vcmc.load_locals(tmp_path)["alpha"] == expected).all()


def test_groups_are_drawn_at_once_as_memory_allows():
    assert groups_at_once(num_points=5000, dim=1) == 2**26 // 40_000
    assert groups_at_once(num_points=10**8, dim=10) == 1
