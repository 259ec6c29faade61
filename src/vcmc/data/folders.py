"""Folders that rows are written to: vcmc's own, in which no file of others is touched.

A folder of rows has a marker. The process that writes it holds a lock on the marker, and of a
temporary folder it keeps the lock, so that the copies of a process that was killed are found and
deleted by the next one. A lock, unlike the number of a process, means the same in all containers.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

MARKER = "written-by-vcmc.txt"
MARKER_TEXT = "vcmc wrote this folder, and may delete the files that it wrote here.\n"
PREFIX = "vcmc-rows-"  # of the names of temporary folders
MAX_NAMED_FILES = 3  # in a message


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Create a folder for rows, or take one that is empty or was written by vcmc, and lock it."""
    lock = _open(folder)
    try:
        yield
    finally:
        lock.close()


def temporary_folder() -> tuple[Path, IO[str]]:
    """Return a new temporary folder that only the user can read, and its lock.

    The folders of processes that have ended without deleting them are deleted.
    """
    parent = Path(tempfile.gettempdir())
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            _delete_if_abandoned(folder)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    return folder, _new_marker(folder)


def discard(folder: Path, owner: int, lock: IO[str] | None = None) -> None:
    """Delete a temporary folder in the process that made it; a forked one leaves it alone."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.close()


def open_like_folder(path: Path, mode: str) -> Any:
    """Open a file to write; a new one can be read by those who can read its folder."""
    permissions = path.parent.stat().st_mode & 0o666
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, permissions))


def _open(folder: Path) -> IO[str]:
    """Return the locked marker of a folder, which is created if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"folder must be a folder, or a new path; got {folder}, a file.") from None
    if not (folder / MARKER).exists():
        names = sorted(path.name for path in folder.iterdir())
        if others := [name for name in names if not name.startswith(MARKER)]:
            more = len(others) - MAX_NAMED_FILES
            raise ValueError(
                "folder must be new, empty, or the folder of an earlier split; "
                f"got {folder}, which holds {', '.join(others[:MAX_NAMED_FILES])}"
                + (f" and {more} more" if more > 0 else "")
                + f", which vcmc did not write. Try folder={str(folder / 'shards')!r}."
            )
        return _new_marker(folder)
    marker = (folder / MARKER).open("a")
    if not _lock(marker):
        marker.close()
        raise _busy(folder)
    return marker


def _busy(folder: Path) -> ValueError:
    return ValueError(
        f"another process is writing rows to {folder}. Wait for it, or use another folder."
    )


def _new_marker(folder: Path) -> IO[str]:
    """Write a marker that is locked before it has its name."""
    new = folder / f"{MARKER}.{os.getpid()}"
    marker = open_like_folder(new, "w")
    marker.write(MARKER_TEXT)
    marker.flush()
    _lock(marker)
    try:
        os.link(new, folder / MARKER)  # unlike a rename, it fails if another process was faster
    except FileExistsError:
        marker.close()
        raise _busy(folder) from None
    except OSError:  # a file system without links
        shutil.copy(new, folder / MARKER)
    finally:
        new.unlink()
    return marker


def _lock(file: IO[str]) -> bool:
    """Lock a file; return whether no other process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _delete_if_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid():
        return
    with (folder / MARKER).open("r+") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its process is alive
        shutil.rmtree(folder, ignore_errors=True)
