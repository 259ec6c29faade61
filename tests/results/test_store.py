"""Run directories: runs are stored and resumed; damaged files are replaced or refused."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.results import store as stores

SAMPLER = vcmc.samplers.NUTS(num_warmup=150)
ARGUMENTS = {"num_shards": 4, "num_draws": 250, "sampler": SAMPLER, "progress": False}


@pytest.fixture(scope="module")
def expected(conjugate):
    return vcmc.infer(conjugate.model, conjugate.rows, **ARGUMENTS)


def run(conjugate, folder, **changed):
    arguments = {
        "model": conjugate.model,
        "rows": conjugate.rows,
        **ARGUMENTS,
        "store": folder,
        **changed,
    }
    return vcmc.infer(arguments.pop("model"), arguments.pop("rows"), **arguments)


def assert_same(tree, expected):
    for group in ("posterior", "subposterior", "sample_stats"):
        for name in expected[group].data_vars:
            np.testing.assert_array_equal(tree[group][name], expected[group][name])


class Stops(vcmc.samplers.NUTS):
    """NUTS that fails in the 4th block of a chain if a file exists; the store sees plain NUTS."""

    trigger: str = ""

    def advance(self, setup, state, key, num_steps):
        if num_steps and os.path.exists(self.trigger) and state.step == 300:
            raise KeyboardInterrupt
        return super().advance(setup, state, key, num_steps)

    def __repr__(self):
        return repr(SAMPLER)


@pytest.fixture(scope="module")
def interrupted(conjugate, tmp_path_factory):
    """The folder of a run that was interrupted after three blocks of some or all chains."""
    folder = tmp_path_factory.mktemp("interrupted")
    trigger = folder / "stop"
    trigger.touch()
    with pytest.raises(KeyboardInterrupt):
        run(conjugate, folder / "run", sampler=Stops(num_warmup=150, trigger=str(trigger)))
    count = -1
    while count < (count := _num_blocks(folder / "run")):  # a block that was begun may end
        time.sleep(0.5)
    trigger.unlink()
    assert count >= 3
    return folder / "run"


@pytest.fixture
def stopped(interrupted, tmp_path):
    """A copy of the interrupted run."""
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def test_a_run_is_stored_and_loaded(conjugate, expected, tmp_path):
    tree = run(conjugate, tmp_path)
    assert_same(tree, expected)
    loaded = vcmc.load(tmp_path)
    assert_same(loaded, tree)
    assert dict(loaded["posterior"].sizes) == dict(tree["posterior"].sizes)
    assert loaded.attrs["verdict"] == tree.attrs["verdict"]
    assert loaded.attrs["created_at"] == tree.attrs["created_at"]
    assert str(vcmc.diagnose(loaded)) == str(vcmc.diagnose(tree))


def test_an_interrupted_run_is_resumed_bit_for_bit(conjugate, expected, stopped, monkeypatch):
    steps = []
    advance = vcmc.samplers.NUTS.advance
    monkeypatch.setattr(
        vcmc.samplers.NUTS,
        "advance",
        lambda *given: (steps.append(int(given[-1])), advance(*given))[1],
    )
    kept = _num_blocks(stopped)
    assert_same(run(conjugate, stopped), expected)
    assert sum(steps) == 4 * 400 - 100 * kept  # and nothing is made twice


def test_complete_shards_of_an_unfinished_run_can_be_loaded(conjugate, expected, stopped):
    with pytest.raises(vcmc.StoreError, match=r"no shard of .* is complete yet"):
        vcmc.load(stopped)
    run(conjugate, stopped)
    for name in ("tree.npz", "tree.json", "draws/00002-0/00003.npz"):
        (stopped / name).unlink()
    loaded = vcmc.load(stopped)
    assert loaded.attrs["sound_shards"] == [0, 1, 3]
    assert "1 of 4 shards are missing ([2])" in loaded.attrs["warnings"][0]
    np.testing.assert_array_equal(
        loaded["subposterior"]["beta"], expected["subposterior"]["beta"][[0, 1, 3]]
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut off", "changed", "empty", "gone", "state"])
def test_damaged_files_are_sampled_again(damage, conjugate, expected, stopped):
    folder = sorted((stopped / "draws").iterdir())[0]
    block = folder / ("state.pickle" if damage == "state" else "00001.npz")
    kept = bytearray(block.read_bytes())
    if damage == "gone":
        block.unlink()
    elif damage == "changed":
        kept[len(kept) // 2] ^= 255
        block.write_bytes(kept)
    else:
        block.write_bytes(kept[: 0 if damage == "empty" else len(kept) // 2])
    assert_same(run(conjugate, stopped), expected)
    for path in (stopped / "draws").glob("*/*.npz"):
        np.load(path)["points"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"num_draws": 300}, "num_draws was 250 and is 300"),
        ({"num_shards": 5}, "num_shards was 4 and is 5"),
        ({"sampler": vcmc.samplers.NUTS(num_warmup=151)}, "sampler was .*num_warmup=150"),
    ],
)
def test_changed_settings_are_refused(changed, message, conjugate, stopped):
    with pytest.raises(vcmc.StoreError, match=f"holds another run: .*{message}"):
        run(conjugate, stopped, **changed)


def test_changed_rows_and_models_are_refused(conjugate, stopped):
    rows = {name: array.copy() for name, array in conjugate.rows.items()}
    partition = vcmc.split(rows, 4)
    rows["y"][partition.members[2][7]] += 1e-9
    with pytest.raises(vcmc.StoreError, match=r"shards differs at \[2\]"):
        run(conjugate, stopped, rows=rows)
    model = vcmc.Model(
        conjugate.model.space,
        lambda params: conjugate.model.log_prior(params) - 0.01 * jnp.sum(params["beta"] ** 4),
        conjugate.model.log_likelihood,
    )
    with pytest.raises(vcmc.StoreError, match=r"log densities differs at \[0, 2, 4\]"):
        run(conjugate, stopped, model=model)


def test_a_run_is_resumed_with_another_combiner_or_executor(conjugate, stopped, expected):
    tree = run(
        conjugate,
        stopped,
        combiner=vcmc.combiners.Consensus(),
        executor=vcmc.executors.Local(num_threads=1),
    )
    np.testing.assert_array_equal(tree["subposterior"]["beta"], expected["subposterior"]["beta"])


def test_a_full_disk_is_reported_and_nothing_is_lost(conjugate, expected, tmp_path, monkeypatch):
    left, savez = [6], np.savez

    def full(path, **arrays):
        left[0] -= 1
        if left[0] < 0:
            savez(path, **arrays)
            os.truncate(path, 100)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(path, **arrays)

    monkeypatch.setattr(stores.np, "savez", full)
    with pytest.raises(
        vcmc.StoreError, match=r"No space left on device. Everything written before is kept"
    ):
        run(conjugate, tmp_path)
    monkeypatch.undo()
    assert len(list((tmp_path / "draws").glob("*/*.npz"))) == 6
    assert_same(run(conjugate, tmp_path), expected)


@pytest.mark.parametrize("damage", ["no settings", "bad settings", "a file", "not there"])
def test_other_folders_are_refused(damage, conjugate, stopped):
    settings = stopped / "run.json"
    if damage == "no settings":
        settings.unlink()
        with pytest.raises(vcmc.StoreError, match=r"has draws but no run.json"):
            run(conjugate, stopped)
        with pytest.raises(vcmc.StoreError, match=r"is not a run directory: it has no run.json"):
            vcmc.load(stopped)
    elif damage == "bad settings":
        settings.write_text(settings.read_text()[:50])
        with pytest.raises(vcmc.StoreError, match=r"run.json cannot be read"):
            run(conjugate, stopped)
    elif damage == "a file":
        with pytest.raises(vcmc.StoreError, match="store must be a folder"):
            run(conjugate, settings)
    else:
        with pytest.raises(vcmc.StoreError, match="there is no run directory"):
            vcmc.load(stopped / "other")


SCRIPT = """
import sys
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
import vcmc

model = vcmc.models.Logistic(3)
rows = model.simulate(0, 600).rows
executor = vcmc.executors.Processes(2) if len(sys.argv) > 3 else None
vcmc.infer(model, rows, num_shards=6, num_draws=4000, store=sys.argv[1], executor=executor)
"""


@pytest.mark.slow
def test_a_killed_run_is_resumed_bit_for_bit(tmp_path, monkeypatch):
    """The driver is killed, and its processes with it: `benchmarks/kills.py`, in short."""
    arguments = [
        str(tmp_path / "killed"),
        str(Path(__file__).parents[1] / ".cache" / "jax"),
        "processes",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], stderr=subprocess.DEVNULL
    )
    while process.poll() is None and _num_blocks(tmp_path / "killed") < 20:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 20 <= _num_blocks(tmp_path / "killed") < 6 * 43
    for folder in ("killed", "whole"):
        monkeypatch.setattr(sys, "argv", ["", str(tmp_path / folder), arguments[1]])
        exec(SCRIPT, {})
    assert_same(vcmc.load(tmp_path / "killed"), vcmc.load(tmp_path / "whole"))


def _num_blocks(folder):
    return sum(1 for _ in (folder / "draws").glob("*/?????.npz"))
