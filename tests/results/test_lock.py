"""A run directory is locked by one run at a time, and free again after its process has ended."""

import errno
import os
import signal
import subprocess
import sys
import threading

import pytest

import vcmc
from vcmc.results import lock
from vcmc.results.lock import locked

HOLDER = """
import sys, time
from pathlib import Path
from vcmc.results.lock import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_another_process_is_refused_and_told_who_holds_the_lock(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            message = rf"in use by another run \(process {process.pid} on .+, since 2"
            with pytest.raises(vcmc.StoreError, match=message), locked(tmp_path):
                pass
        finally:
            process.send_signal(signal.SIGKILL)
    with locked(tmp_path):
        pass


def test_another_thread_is_refused_and_the_same_may_lock_again(tmp_path):
    caught = []

    def enter():
        try:
            with locked(tmp_path):
                pass
        except vcmc.StoreError as error:
            caught.append(str(error))

    with locked(tmp_path):
        with locked(tmp_path / "." / ""):
            pass
        for _ in range(2):
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join()
    assert len(caught) == 2
    assert f"process {os.getpid()}" in caught[0]
    enter()
    assert len(caught) == 2


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        pass


def test_file_systems_with_other_locks_or_none(tmp_path, monkeypatch):
    def not_supported(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", not_supported)
    with locked(tmp_path):  # by fcntl's record locks
        pass
    monkeypatch.setattr(lock.fcntl, "lockf", not_supported)
    with pytest.warns(vcmc.StoreWarning, match="without locks"), locked(tmp_path):
        pass


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(vcmc.StoreError, match="store must be a folder"),
        locked(tmp_path / "file"),
    ):
        pass
