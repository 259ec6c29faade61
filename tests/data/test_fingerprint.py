"""Fingerprints of files and arrays notice changed contents, and nothing else."""

import json
import os
import shutil

import numpy as np
import pytest

from vcmc.data import fingerprint
from vcmc.data.fingerprint import (
    changed_arrays,
    changed_files,
    fingerprint_arrays,
    fingerprint_files,
)


@pytest.fixture
def folder(tmp_path):
    """A folder with a file of five blocks and a short one in a folder below."""
    root = tmp_path / "rows"
    (root / "part").mkdir(parents=True)
    generator = np.random.default_rng(0)
    (root / "a.bin").write_bytes(generator.bytes(5 * fingerprint.BLOCK_BYTES - 7))
    (root / "part" / "b.bin").write_bytes(b"short")
    return root


def files(root):
    return [path for path in root.rglob("*") if path.is_file()]


def flip_byte(path, position):
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_touched_and_copied_files_are_unchanged(folder, tmp_path):
    before = json.loads(json.dumps(fingerprint_files(folder, files(folder))))
    os.utime(folder / "a.bin", ns=(1, 1))
    copied = shutil.copytree(folder, tmp_path / "copied", copy_function=shutil.copyfile)
    assert sorted(before) == ["a.bin", "part/b.bin"]
    assert changed_files(before, folder, files(folder)) == []
    assert changed_files(before, copied, files(copied)) == []


def test_a_single_file_may_be_renamed(folder, tmp_path):
    before = fingerprint_files(folder / "a.bin", [folder / "a.bin"])
    renamed = shutil.move(folder / "a.bin", tmp_path / "renamed.bin")
    assert changed_files(before, renamed, [renamed]) == []


@pytest.mark.parametrize("position", [0, 2 * fingerprint.BLOCK_BYTES, -1])
def test_a_flipped_bit_is_noticed_without_a_new_time(folder, position):
    before = fingerprint_files(folder, files(folder))
    flip_byte(folder / "a.bin", position)
    assert changed_files(before, folder, files(folder)) == ["a.bin"]


def test_added_and_removed_files_are_noticed(folder):
    before = fingerprint_files(folder, files(folder))
    (folder / "part" / "b.bin").rename(folder / "c.bin")
    assert changed_files(before, folder, files(folder)) == ["c.bin", "part/b.bin"]


def test_large_files_are_sampled_only_if_they_were_not_modified(folder, monkeypatch):
    monkeypatch.setattr(fingerprint, "MAX_SAMPLED_BLOCKS", 2)  # the first and the last
    path = folder / "a.bin"
    before = fingerprint_files(path, [path])
    flip_byte(path, 2 * fingerprint.BLOCK_BYTES)
    assert changed_files(before, path, [path]) == []  # what a sample cannot see
    os.utime(path)
    assert changed_files(before, path, [path]) == [""]


def test_a_memory_mapped_array_that_was_written_to_is_noticed(tmp_path):
    array = np.memmap(tmp_path / "y.bin", float, "w+", shape=(1000, 2))
    before = json.loads(json.dumps(fingerprint_arrays({"y": array})))
    again = np.memmap(tmp_path / "y.bin", float, "r", shape=(1000, 2))
    assert changed_arrays(before, {"y": again}) == []
    array[700, 1] = 5
    array.flush()
    assert changed_arrays(before, {"y": again}) == ["y"]
    assert changed_arrays(before, {"y": again[:, :1], "x": again}) == ["x", "y"]


def test_arrays_with_the_same_bytes_and_another_type_differ():
    before = fingerprint_arrays({"y": np.zeros(4)})
    assert changed_arrays(before, {"y": np.zeros(4, int)}) == ["y"]
    assert changed_arrays(before, {"y": np.zeros((2, 2))}) == ["y"]
    assert changed_arrays(before, {"y": np.zeros(4)}) == []
