"""The lock of a run directory, so that two runs cannot write to it at once.

The operating system releases it when the process ends, in whatever way. The file says who holds
the lock. It is never deleted: another process may be waiting to lock the same file.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import StoreError, StoreWarning, warn_user
from .checked_files import FILE_MODE, make_folder

LOCK = "lock"
NOT_SUPPORTED = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL)


@dataclass
class _Held:
    """A lock that a thread of this process holds, its file, and how often it was taken."""

    thread: int
    file: int
    count: int = 1


_held: dict[Path, _Held] = {}
_registry_lock = threading.Lock()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory; raise `StoreError` if another run holds it.

    The thread that holds it may lock it again.
    """
    path = folder.resolve() / LOCK
    thread = threading.get_ident()
    with _registry_lock:
        held = _held.get(path)
        if held and held.thread == thread:
            held.count += 1
        elif held:
            raise _refusal(folder, path)
        else:
            held = _held[path] = _Held(thread, _acquire(folder, path))
    try:
        yield
    finally:
        with _registry_lock:
            held.count -= 1
            if not held.count:
                del _held[path]
                os.close(held.file)


def _acquire(folder: Path, path: Path) -> int:
    """Return the descriptor of the locked file."""
    try:
        make_folder(folder)
        file = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    except OSError as error:
        raise StoreError(
            f"store must be a folder that can be created or written to; got {folder} "
            f"({error.strerror})."
        ) from None
    try:
        _lock_file(folder, file)
    except BlockingIOError:
        os.close(file)
        raise _refusal(folder, path) from None
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with contextlib.suppress(OSError):  # on a full disk the lock is anonymous
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(holder).encode(), 0)
    return file


def _lock_file(folder: Path, file: int) -> None:
    """Lock a file; raise `BlockingIOError` if another process has."""
    for lock in (fcntl.flock, fcntl.lockf):  # some network file systems know only the second
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BlockingIOError from error
            if error.errno not in NOT_SUPPORTED:
                raise
    warn_user(
        f"{folder} is on a file system without locks: make sure that no other run uses it.",
        StoreWarning,
    )


def _refusal(folder: Path, path: Path) -> StoreError:
    try:
        holder = json.loads(path.read_text())
        who = f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        who = "another process"
    return StoreError(
        f"{folder} is in use by another run ({who}). Wait until it ends, or use another folder."
    )
