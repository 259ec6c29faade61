"""Files of a run directory are private and durable; altered ones do not count."""

import errno
import io
import os
import shutil
import stat
import zipfile

import numpy as np
import pytest

import vcmc
from vcmc.results import checked_files
from vcmc.results.checked_files import (
    has_json,
    make_folder,
    read_arrays,
    read_json,
    write,
    write_arrays,
    write_json,
)

ARRAYS = {"points": np.arange(6.0).reshape(2, 3), "stats/energy": np.ones(2)}


def test_arrays_come_back_and_numpy_can_read_them(tmp_path):
    write_arrays(tmp_path / "a.npz", ARRAYS)
    loaded = read_arrays(tmp_path / "a.npz")
    assert list(loaded) == list(ARRAYS)
    with np.load(tmp_path / "a.npz") as archive:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(loaded[name], array)
            np.testing.assert_array_equal(archive[name], array)


def test_every_altered_byte_is_noticed(tmp_path):
    """Also in the index of the archive, for which NumPy has no checksum."""
    path = tmp_path / "a.npz"
    write_arrays(path, {"x": np.zeros(1), "y": np.ones(1)})
    content = path.read_bytes()
    for position in range(len(content)):
        altered = bytearray(content)
        altered[position] ^= 1
        path.write_bytes(altered)
        assert read_arrays(path) is None
    for length in (0, 10, len(content) - 1):
        path.write_bytes(content[:length])
        assert read_arrays(path) is None


def test_a_block_of_another_chain_is_not_one_of_this(tmp_path):
    write_arrays(tmp_path / "00000-0" / "00001.npz", ARRAYS)
    for name in ("00000-1/00001.npz", "00000-0/00002.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(tmp_path / "00000-0" / "00001.npz", tmp_path / name)
        assert read_arrays(tmp_path / name) is None
    moved = shutil.copytree(tmp_path / "00000-0", tmp_path / "elsewhere" / "00000-0")
    assert read_arrays(moved / "00001.npz") is not None


def test_pickled_objects_are_refused_even_with_a_checksum(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, x=np.array([{}], object))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(checked_files.CHECKSUM_BYTES)
    body = buffer.getvalue()[: -checked_files.CHECKSUM_BYTES]
    path = tmp_path / "a.npz"
    path.write_bytes(body + checked_files._checksum(path, body))
    assert read_arrays(path) is None
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(path, {"x": np.array([{}], object)})


def test_altered_json_is_refused(tmp_path):
    path = tmp_path / "run.json"
    write_json(path, {"seed": 0, "values": [np.float64(0.1)]})
    assert read_json(path) == {"seed": 0, "values": [0.1]}
    assert has_json(path, {"seed": 0, "values": (np.float64(0.1),)})
    assert not has_json(path, {"seed": 1, "values": [0.1]})
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(ValueError, match="checksum"):
        read_json(path)
    assert not has_json(path, {"seed": 0, "values": [0.2]})
    path.write_text("[]")
    with pytest.raises(ValueError, match="checksum"):
        read_json(path)


def test_only_the_user_can_read_files_and_folders(tmp_path):
    mask = os.umask(0)
    try:
        write(tmp_path / "run" / "draws" / "a", b"")
        make_folder(tmp_path / "rows")
    finally:
        os.umask(mask)
    modes = {
        name: stat.S_IMODE((tmp_path / name).stat().st_mode)
        for name in ("rows", "run/draws", "run/draws/a")
    }
    assert modes == {"rows": 0o700, "run/draws": 0o700, "run/draws/a": 0o600}


def test_files_are_on_the_disk_before_they_have_their_name(tmp_path, monkeypatch):
    events, replace, fsync = [], os.replace, os.fsync

    def record_fsync(file):
        events.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    monkeypatch.setattr(checked_files.os, "fsync", record_fsync)
    monkeypatch.setattr(
        checked_files.os, "replace", lambda *names: (events.append("rename"), replace(*names))
    )
    write(tmp_path / "a", b"new")
    assert events == ["file", "rename", "folder"]


def test_a_file_that_cannot_be_written_keeps_its_content(tmp_path, monkeypatch):
    write(tmp_path / "a", b"old")

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checked_files.os, "fsync", full)
    with pytest.raises(vcmc.StoreError, match="a could not be written: No space left on device"):
        write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
