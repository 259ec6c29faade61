"""Run directories: runs are stored and resumed; damaged files are replaced or refused."""

import concurrent.futures
import contextlib
import errno
import hashlib
import io
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.cli.model_reports import write_report
from vcmc.results import store

SAMPLER = vcmc.samplers.NUTS(num_warmup=150)
ARGUMENTS = {"num_shards": 4, "shard_draws": 250, "sampler": SAMPLER, "progress": False}


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
    for name in ("tree.npz", "draws/00002-0/00003.npz"):
        (stopped / name).unlink()
    loaded = vcmc.load(stopped)
    assert loaded.attrs["sound_shards"] == [0, 1, 3]
    assert "1 of 4 shards are missing ([2])" in loaded.attrs["warnings"][0]
    np.testing.assert_array_equal(
        loaded["subposterior"]["beta"], expected["subposterior"]["beta"][[0, 1, 3]]
    )


DAMAGES = ["cut off", "changed", "renamed", "empty", "gone", "state"]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_sampled_again(damage, conjugate, expected, stopped):
    folder = sorted((stopped / "draws").glob("?????-?"))[0]
    block = folder / ("checkpoint.npz" if damage == "state" else "00001.npz")
    kept = bytearray(block.read_bytes())
    if damage == "state":
        (folder / "checkpoint-synced.npz").unlink(missing_ok=True)
    if damage == "gone":
        block.unlink()
    elif damage == "renamed":
        shutil.copyfile(folder / "00002.npz", block)
    elif damage == "changed":
        kept[len(kept) // 2] ^= 255
        block.write_bytes(kept)
    else:
        block.write_bytes(kept[: 0 if damage == "empty" else len(kept) // 2])
    reason = "state of the chain" if damage == "state" else "block 1"
    with pytest.warns(
        vcmc.StoreWarning,
        match=f"1 stored chain could not .*shard 0, chain 0: .*{reason} is missing or",
    ):
        tree = run(conjugate, stopped)
    assert_same(tree, expected)
    for path in (stopped / "draws").glob("*/?????.npz"):
        np.load(path)["points"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, "seed: the run has 0, given 1"),
        ({"shard_draws": 200}, r"shard_draws: the run has 250, given 200 \(a run can be extended"),
        ({"num_shards": 5}, "num_shards: the run has 4, given 5"),
        ({"thin": 2}, "thin: the run has 1, given 2"),
        ({"prior": "partial"}, "prior: the run has subposterior, given partial"),
        (
            {"sampler": vcmc.samplers.NUTS(num_warmup=151)},
            r"sampler: the run has NUTS\(num_warmup=150.*given NUTS\(num_warmup=151",
        ),
        ({"sampler": None}, r"sampler: the run has NUTS\(num_warmup=150.*given HMC\(\)"),
    ],
)
def test_changed_settings_are_refused(changed, message, conjugate, stopped):
    with pytest.raises(
        vcmc.StoreError, match=f"holds another run: {message}.* Use another folder, or repeat"
    ):
        run(conjugate, stopped, **changed)


def test_changed_rows_and_models_are_refused(conjugate, stopped):
    rows = {name: array.copy() for name, array in conjugate.rows.items()}
    partition = vcmc.split(rows, 4)
    rows["y"][partition.members[2][7]] += 1e-9
    with pytest.raises(
        vcmc.StoreError, match=r"run: the rows have changed \(1 of 4 shards differs; .*shard 2\)"
    ):
        run(conjugate, stopped, rows=rows)
    for shard in range(4):
        rows["y"][partition.members[shard][0]] += 1
    with pytest.raises(
        vcmc.StoreError, match=r"run: the rows have changed \(4 of 4 shards differ; .*shard 0\)"
    ):
        run(conjugate, stopped, rows=rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("log_prior", r"\(its log prior differs\)"),
        ("log_likelihood", r"\(its log likelihood differs\)"),
        ("both", r"\(its log prior differs, its log likelihood differs\)"),
        ("derived", r"\(its derived quantities differ\)"),
        ("parameters", r": the run has .*, given Model\(gamma"),
    ],
)
def test_a_changed_model_is_refused(change, message, conjugate, stopped):
    model, is_both = conjugate.model, change == "both"

    def log_prior(params):
        extra = 0.01 * jnp.sum(params["beta"] ** 4) if is_both or change == "log_prior" else 0.0
        return model.log_prior(params) - extra

    def log_likelihood(params, rows):
        factor = 1.01 if is_both or change == "log_likelihood" else 1.0
        return factor * model.log_likelihood(params, rows)

    def renamed(function):
        return lambda params, *rows: function({"beta": params["gamma"]}, *rows)

    changed = vcmc.Model(
        model.space,
        log_prior,
        log_likelihood,
        derived=(lambda params: {"sum": params["beta"].sum()}) if change == "derived" else None,
    )
    if change == "parameters":
        space = {"gamma": model.space["beta"]}
        changed = vcmc.Model(space, renamed(log_prior), renamed(log_likelihood))
    with pytest.raises(vcmc.StoreError, match=f"another run: the model has changed ?{message}"):
        run(conjugate, stopped, model=changed)


def test_a_run_is_resumed_with_another_combiner_or_executor(conjugate, stopped, expected):
    tree = run(
        conjugate,
        stopped,
        combiner=vcmc.combiners.Consensus(),
        executor=vcmc.executors.Local(num_threads=1),
    )
    np.testing.assert_array_equal(tree["subposterior"]["beta"], expected["subposterior"]["beta"])


def full_disk(monkeypatch, pattern, num_files):
    """Let the disk be full once some files of this name were written."""
    left, replace = [num_files], os.replace

    def full(new, path):
        left[0] -= Path(path).match(pattern)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(new, path)

    monkeypatch.setattr(os, "replace", full)


FULL = r"No space left on device. Everything written before is kept"


@pytest.mark.parametrize("overlap", [False, True])
def test_a_full_disk_is_reported_with_the_draws_so_far(
    overlap, conjugate, expected, tmp_path, monkeypatch
):
    full_disk(monkeypatch, "?????.npz", 7)
    with pytest.raises(vcmc.StoreError, match=f"{FULL}.* in this error's `tree`") as caught:
        run(conjugate, tmp_path, overlap=overlap)
    monkeypatch.undo()
    assert len(list((tmp_path / "draws").glob("*/?????.npz"))) == 7
    assert not list(tmp_path.rglob("*.new"))
    tree = caught.value.tree
    shards, count = tree.attrs["sound_shards"], tree.attrs["shard_draws"]
    assert shards
    assert count >= 50
    np.testing.assert_array_equal(
        tree["subposterior"]["beta"], expected["subposterior"]["beta"][shards, :, :count]
    )
    assert_same(run(conjugate, tmp_path), expected)


def test_a_result_that_cannot_be_written_is_in_the_error(conjugate, expected, stopped, monkeypatch):
    run(conjugate, stopped, combiner=vcmc.combiners.Consensus())  # all chains are complete
    full_disk(monkeypatch, "tree*", 0)
    with pytest.raises(vcmc.StoreError, match=f"{FULL}.* The result is in this error's") as caught:
        run(conjugate, stopped)
    assert_same(caught.value.tree, expected)
    assert caught.value.tree.attrs["verdict"] == expected.attrs["verdict"]


def test_a_folder_that_vanishes_is_reported_with_the_draws_so_far(conjugate, tmp_path, monkeypatch):
    """As if a network drive had gone; a file is in its place."""
    folder, advance = tmp_path / "run", vcmc.samplers.NUTS.advance

    def vanishing(sampler, setup, state, key, num_steps):
        if num_steps and int(state.step) == 200 and folder.is_dir():
            with contextlib.suppress(OSError):
                folder.rename(tmp_path / "away")
                folder.touch()
        return advance(sampler, setup, state, key, num_steps)

    monkeypatch.setattr(vcmc.samplers.NUTS, "advance", vanishing)
    with pytest.raises(vcmc.StoreError, match="could not be written: ") as caught:
        run(conjugate, folder)
    assert caught.value.tree["subposterior"].sizes["draw"] >= 50
    assert caught.value.tree["subposterior"].sizes["shard"] >= 1


@pytest.mark.parametrize("damage", ["bad settings", "no settings", "a file", "not there", "older"])
def test_other_folders_are_refused(damage, conjugate, stopped):
    files = [stopped / "run.json", stopped / "draws" / "run.json"]
    if damage == "no settings":
        for file in files:
            file.unlink()
        for verb in (lambda: run(conjugate, stopped), lambda: vcmc.load(stopped)):
            with pytest.raises(vcmc.StoreError, match=r"has draws but no run.json"):
                verb()
    elif damage == "bad settings":
        for file in files:
            file.write_text(file.read_text()[:50])
        with pytest.raises(vcmc.StoreError, match=r"run.json cannot be read .*, nor can its copy"):
            run(conjugate, stopped)
    elif damage == "a file":
        with pytest.raises(vcmc.StoreError, match="store must be a folder"):
            run(conjugate, files[0])
    elif damage == "older":
        files[1].unlink()
        files[0].write_text('{"seed": 0, "log densities": ["1"], "shards": ["a"]}')
        for verb in (lambda: run(conjugate, stopped), lambda: vcmc.load(stopped)):
            with pytest.raises(vcmc.StoreError, match="was written by another version of vcmc"):
                verb()
    else:
        with pytest.raises(vcmc.StoreError, match="there is no run directory"):
            vcmc.load(stopped / "other")


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_lost_run_json_is_read_from_its_copy(damage, conjugate, expected, stopped):
    path = stopped / "run.json"
    text = path.read_text()
    path.unlink()
    if damage == "changed":
        path.write_text(text.replace('"seed": 0', '"seed": 1'))
    assert_same(run(conjugate, stopped), expected)
    assert path.read_text() == text


class Payload:
    """An object whose unpickling creates a folder, as it could run any other code."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def plant(path, form, marker):
    """Replace a file by a pickle, in one of the forms that pickles are stored in."""
    content = pickle.dumps(Payload(marker))
    if form == "with a checksum":  # as vcmc 0.1 stored states
        body = pickle.dumps((3, Payload(marker)))
        content = zlib.crc32(body).to_bytes(4, "big") + body
    elif form == "in arrays":
        names = ["points", "span", "about", "posterior/beta", "0", "1"]
        buffer = io.BytesIO()
        np.savez(buffer, **dict.fromkeys(names, np.array([Payload(marker)], object)))
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.comment = bytes(16)
        content = buffer.getvalue()[:-16]
        name = f"{path.parent.name}/{path.name}" if path.stem.isdigit() else path.name
        content += hashlib.blake2b(content, digest_size=16, key=name.encode()).digest()
    path.write_bytes(content)


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
@pytest.mark.parametrize("kept", [(), ("run.json",), ("run.json", "?????.npz")])
@pytest.mark.parametrize("form", ["plain", "with a checksum", "in arrays"])
def test_nothing_in_a_run_directory_is_unpickled(form, kept, conjugate, stopped, tmp_path):
    marker = tmp_path / "marker"
    folders = [stopped, stopped / "draws", *(stopped / "draws").glob("?????-?")]
    names = ["space.pickle", "state.pickle", "tree.npz", "tree.json", "checkpoint.npz", "00003.npz"]
    files = {path for path in stopped.rglob("*") if path.is_file()}
    files |= {folder / name for folder in folders for name in names}
    for path in files:
        if not any(path.match(pattern) for pattern in kept):
            plant(path, form, marker)
    verbs = (
        lambda: vcmc.load(stopped),
        lambda: write_report(str(stopped), None),
        lambda: run(conjugate, stopped),
    )
    for verb in verbs:
        with contextlib.suppress(vcmc.StoreError):
            verb()
        assert not marker.exists()


@pytest.mark.parametrize("suffix", [".nc", ".npz"])
@pytest.mark.parametrize("form", ["plain", "in arrays"])
def test_nothing_in_a_file_of_draws_is_unpickled(form, suffix, tmp_path):
    marker, path = tmp_path / "marker", tmp_path / f"draws{suffix}"
    plant(path, form, marker)
    with pytest.raises((ValueError, OSError)):
        vcmc.combine(vcmc.read_draws(path, path))
    assert not marker.exists()


def test_draws_are_never_paired_with_another_verdict(conjugate, tmp_path, monkeypatch):
    """A process may be killed after any of its files was written."""
    first = run(conjugate, tmp_path, combiner=vcmc.combiners.Average())
    first_draws = np.asarray(first["posterior"]["beta"])
    replace = os.replace

    def die_after(new, path):
        replace(new, path)
        if Path(path).name.startswith("tree"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die_after)
    with pytest.raises(KeyboardInterrupt):
        run(conjugate, tmp_path, combiner=vcmc.combiners.Consensus())
    loaded = vcmc.load(tmp_path)
    is_first = np.array_equal(loaded["posterior"]["beta"], first_draws)
    assert is_first == ("Average" in loaded.attrs["combiner"])
    assert is_first == (loaded.attrs["verdict_text"] == first.attrs["verdict_text"])


@pytest.mark.parametrize("changed", [{}, {"seed": 1}])
def test_a_second_run_in_the_same_folder_is_refused(changed, conjugate, expected, tmp_path):
    """While a chain of the first is being sampled."""
    begun, refused = threading.Event(), threading.Event()

    class Waits(vcmc.samplers.NUTS):
        def advance(self, setup, state, key, num_steps):
            if num_steps:
                begun.set()
                assert refused.wait(60)
            return super().advance(setup, state, key, num_steps)

        def __repr__(self):
            return repr(SAMPLER)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(run, conjugate, tmp_path, sampler=Waits(num_warmup=150))
        assert begun.wait(60)
        try:
            with pytest.raises(
                vcmc.StoreError, match=rf"in use by another run \(process {os.getpid()} on "
            ):
                run(conjugate, tmp_path, **changed)
        finally:
            refused.set()
        assert_same(first.result(), expected)
    assert_same(vcmc.load(tmp_path), expected)


def test_a_block_without_its_state_is_sampled_again(conjugate, expected, tmp_path, monkeypatch):
    """The process is killed between the two files: only that block is repeated."""
    replace, killed = os.replace, []

    def die_before(new, path):
        if (
            Path(path).name.startswith(("checkpoint", "state"))
            and not killed
            and (Path(path).with_name("00002.npz").exists())
        ):
            killed.append(path)
            raise KeyboardInterrupt
        replace(new, path)

    monkeypatch.setattr(os, "replace", die_before)
    before = threading.enumerate()
    with pytest.raises(KeyboardInterrupt):
        run(conjugate, tmp_path, executor=vcmc.executors.Local(1))
    for thread in set(threading.enumerate()).difference(before):
        thread.join(60)  # it ends the block that it is sampling
    monkeypatch.undo()
    steps, advance = [], vcmc.samplers.NUTS.advance
    monkeypatch.setattr(
        vcmc.samplers.NUTS,
        "advance",
        lambda *given: (steps.append(int(given[-1])), advance(*given))[1],
    )
    kept = _num_blocks(tmp_path)
    assert_same(run(conjugate, tmp_path), expected)
    assert sum(steps) == 4 * 400 - 100 * (kept - 1)


def test_blocks_are_forced_to_the_disk_at_intervals_and_at_the_end(tmp_path, monkeypatch):
    arrays, synced, fsync = {"points": np.zeros((100, 2))}, [], os.fsync

    def record(file):
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(os, "fsync", record)
    for seconds, counts in ((1e9, [0, 0, 5]), (-1.0, [3, 3, 3])):
        monkeypatch.setattr(store, "SYNC_SECONDS", seconds)
        folder = store.ChainFolder(tmp_path / f"{seconds}" / "00000-0")
        writer = store.ChainWriter(folder)
        for number, count in enumerate(counts):
            synced.clear()
            writer.write(number, arrays, {"step": number}, is_last=number == 2)
            files = [name for name in synced if ".npz" in name]
            assert len(files) == (count and count - 1)
            assert synced[-1:] == ([str(folder.path)] if count else [])


def test_a_machine_that_is_switched_off_loses_only_what_was_not_synced(tmp_path, monkeypatch):
    """The names of files may survive, and their contents not."""
    monkeypatch.setattr(store, "SYNC_SECONDS", -1.0)
    folder = store.ChainFolder(tmp_path / "00000-0")
    writer = store.ChainWriter(folder)
    arrays = {"points": np.zeros((100, 2))}
    for number in range(4):
        if number == 2:
            monkeypatch.setattr(store, "SYNC_SECONDS", 1e9)
        writer.write(number, arrays, {"step": 100 * (number + 1)}, is_last=False)
    assert folder.state(4)[0] == 4
    (folder.path / "00003.npz").write_bytes(b"")
    num_blocks, packed = folder.state(len(folder.blocks()))
    assert num_blocks == 2
    assert packed.restore({"step": 0}) == {"step": 200}


def test_a_first_block_without_its_state_is_sampled_again(conjugate, expected, tmp_path):
    """Without a warning: a process was killed, and nothing is damaged."""
    run(conjugate, tmp_path)
    (tmp_path / "tree.npz").unlink()
    for path in (tmp_path / "draws" / "00002-0").iterdir():
        if path.name != "00000.npz":
            path.unlink()
    assert_same(run(conjugate, tmp_path), expected)


def test_rows_that_were_touched_or_copied_do_not_block_a_resume(conjugate, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"a": conjugate.rows["x"][:, 0], "y": conjugate.rows["y"]}
    path, copy = tmp_path / "rows.parquet", tmp_path / "copy.parquet"
    pq.write_table(pa.table(columns), path)
    model = vcmc.Model(
        {"beta": vcmc.Real()},
        lambda params: -0.5 * params["beta"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - rows["a"] * params["beta"]) ** 2,
    )
    first = run(conjugate, tmp_path / "run", model=model, rows=path)
    os.utime(path, ns=(1, 1))
    shutil.copyfile(path, copy)
    for rows in (path, copy):
        (tmp_path / "run" / "tree.npz").unlink()
        assert_same(run(conjugate, tmp_path / "run", model=model, rows=rows), first)
    columns["y"] = columns["y"] + np.eye(1, len(columns["y"]))[0]
    pq.write_table(pa.table(columns), path)
    with pytest.raises(ValueError, match="the rows have changed"):
        run(conjugate, tmp_path / "run", model=model, rows=path)


def test_rows_and_draws_are_readable_by_the_user_only(conjugate, tmp_path):
    mapped = {}
    for name, array in conjugate.rows.items():
        np.save(tmp_path / f"{name}.npy", array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    mask = os.umask(0o022)
    try:
        run(conjugate, tmp_path / "run", rows=mapped)
    finally:
        os.umask(mask)
    paths = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    assert any(path.suffix == ".bin" for path in paths)
    for path in paths:
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        elif path.parent.name != "rows":  # its files are behind the folder's mode
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


SCRIPT = """
import sys
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
import vcmc

model = vcmc.models.Logistic(3)
rows = model.simulate(0, 600).rows
executor = vcmc.executors.Processes(2) if len(sys.argv) > 3 else None
vcmc.infer(model, rows, num_shards=6, shard_draws=4000, store=sys.argv[1], executor=executor)
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
