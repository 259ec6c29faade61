"""Folders of rows: files of others are left alone, and copies of rows do not outlive a process."""

import os
import signal
import stat
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import vcmc

SPLIT_AND_WAIT = """
import sys, time
import numpy as np, vcmc
rows = np.load(sys.argv[1], mmap_mode="r")
partition = vcmc.split({"y": rows}, 2)
print(partition.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mapped(tmp_path):
    """A memory-mapped array in a folder of the user's, with other files beside it."""
    folder = tmp_path / "mine"
    folder.mkdir()
    np.arange(100.0).tofile(folder / "y.bin")
    (folder / "00000.y.bin").write_text("a file of the user's")
    return np.memmap(folder / "y.bin", float, "r")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def process(mapped, end, tmp_path):
    """Start a process that splits rows into a temporary folder, end it, and return the folder."""
    script = tmp_path / "script.py"
    script.write_text(SPLIT_AND_WAIT)
    np.save(tmp_path / "y.npy", mapped)
    with subprocess.Popen(
        [sys.executable, script, tmp_path / "y.npy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        folder = running.stdout.readline().strip()
        assert folder
        end(running)
        running.communicate(timeout=60)
    return folder


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(mapped, tmp_path):
    before = contents(tmp_path / "mine")
    with pytest.raises(ValueError, match=r"holds 00000.y.bin, y.bin.* folder='.*mine/shards'"):
        vcmc.split({"y": mapped}, 4, folder=tmp_path / "mine")
    assert contents(tmp_path / "mine") == before
    assert vcmc.split({"y": mapped}, 4, folder=tmp_path / "mine" / "shards").num_shards == 4
    (tmp_path / "empty").mkdir()
    assert vcmc.split({"y": mapped}, 4, folder=tmp_path / "empty").num_shards == 4


def test_a_split_that_is_repeated_removes_only_its_own_files(mapped, tmp_path):
    folder = tmp_path / "split"
    whole = vcmc.split({"y": mapped}, 4, folder=folder)
    (folder / "rows.json").unlink()  # as if it had been interrupted before the end
    (folder / "y.bin").write_text("a file of the user's")
    again = vcmc.split({"y": mapped}, 4, folder=folder)
    assert (folder / "y.bin").read_text() == "a file of the user's"
    np.testing.assert_array_equal(again.load(1).rows["y"], whole.load(1).rows["y"])


def test_a_file_in_place_of_the_folder_is_refused(mapped, tmp_path):
    with pytest.raises(ValueError, match=r"folder must be a folder.*y\.bin"):
        vcmc.split({"y": mapped}, 4, folder=tmp_path / "mine" / "y.bin")


def test_two_processes_do_not_write_to_one_folder_at_once(mapped, tmp_path):
    from vcmc.data.folders import claim

    with (
        claim(tmp_path / "split"),
        pytest.raises(ValueError, match=r"another process is writing rows to .*split"),
    ):
        vcmc.split({"y": mapped}, 4, folder=tmp_path / "split")
    assert vcmc.split({"y": mapped}, 4, folder=tmp_path / "split").num_shards == 4


@pytest.mark.usefixtures("temporary")
def test_only_the_user_can_read_temporary_copies_and_folders_made_for_rows(mapped, tmp_path):
    for folder in (None, tmp_path / "split"):
        partition = vcmc.split({"y": mapped}, 2, folder=folder)
        assert stat.S_IMODE(partition.folder.stat().st_mode) == 0o700
        for file in partition.folder.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_files_in_a_shared_folder_are_shared(mapped, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    partition = vcmc.split({"y": mapped}, 2, folder=tmp_path / "shared")
    (file, *_) = partition.folder.glob("*.bin")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_copies_of_rows_left_by_an_ended_process_are_deleted_by_the_next(
    sent, mapped, temporary, tmp_path
):
    folder = process(mapped, lambda running: running.send_signal(sent), tmp_path)
    assert folder in map(str, temporary.iterdir())
    partition = vcmc.split({"y": mapped}, 2)
    assert list(temporary.iterdir()) == [partition.folder]


def test_copies_of_rows_of_a_live_process_are_kept(mapped, temporary, tmp_path):
    def check(running):
        del running
        (theirs,) = temporary.iterdir()
        partition = vcmc.split({"y": mapped}, 2)
        assert {*temporary.iterdir()} == {theirs, partition.folder}

    process(mapped, check, tmp_path)
    assert list(temporary.iterdir()) == []


def test_folders_of_others_in_the_temporary_folder_are_kept(mapped, temporary):
    (temporary / "vcmc-rows-of-a-user").mkdir()
    (temporary / "vcmc-rows-of-a-user" / "file").write_text("mine")
    vcmc.split({"y": mapped}, 2)
    assert (temporary / "vcmc-rows-of-a-user" / "file").exists()


@pytest.mark.usefixtures("temporary")
def test_a_forked_process_does_not_delete_the_copies_of_its_parent(mapped):
    from vcmc.data import folders

    partition = vcmc.split({"y": mapped}, 2)
    child = os.getpid() + 1
    folders.discard(partition.folder, child)
    assert partition.folder.exists()
