"""Files of a run directory: complete and unaltered, or not there.

A file is written under a temporary name, forced to the disk, and renamed. Arrays are NumPy's .npz
files, in which pickled objects are refused. The comment at the end of such a file is a checksum of
everything before it, including the index of the arrays, and of its name. JSON files have a
checksum of their contents. Only the user can read them: they hold rows and draws.
"""

import contextlib
import hashlib
import io
import json
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import StoreError

FOLDER_MODE, FILE_MODE = 0o700, 0o600
CHECKSUM_BYTES = 16
READ_BYTES = 2**20  # at once
Arrays = dict[str, np.ndarray]


def make_folder(path: Path) -> None:
    """Create a folder that only the user can read, unless it is there."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def write(path: Path, content: bytes | memoryview, *, is_synced: bool = True) -> None:
    """Write a file in one step: after a crash it has the old content or the new one.

    `is_synced=False` leaves it to the operating system when it is forced to the disk.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    with as_store_error(path):
        make_folder(path.parent)
        try:
            with open(new, "wb", opener=_open_private) as file:
                file.write(content)
                if is_synced:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(new, path)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        if is_synced:
            _sync(path.parent)


def sync_files(paths: Sequence[Path]) -> None:
    """Force files of one folder to the disk."""
    for path in paths:
        with as_store_error(path):
            _sync(path)
    for folder in {path.parent for path in paths}:
        with as_store_error(folder):
            _sync(folder)


@contextlib.contextmanager
def as_store_error(path: Path) -> Iterator[None]:
    """Turn an error of the operating system at writing a file into a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} could not be written: {error.strerror or error}. Everything written before is "
            "kept: free disk space or fix the disk, then repeat the same call to resume the run."
        ) from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _sync(path: Path) -> None:
    """Force a file, or the names of a folder's files, to the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], *, is_synced: bool = True) -> None:
    """Write arrays with a checksum."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(CHECKSUM_BYTES)  # which is the end of the file
    # Without a copy, as results may be large. After an error, too, the view must be released:
    # Python could not free the buffer otherwise.
    with buffer.getbuffer() as content:
        with content[:-CHECKSUM_BYTES] as checked:
            checksum = _checksum(path, checked)
        content[-CHECKSUM_BYTES:] = checksum
        write(path, content, is_synced=is_synced)


def read_arrays(path: Path) -> Arrays | None:
    """Return the arrays of a file, or None if it is missing, truncated or altered."""
    try:
        with path.open("rb") as file:
            if not _has_checksum(path, file):
                return None
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


def _has_checksum(path: Path, file: BinaryIO) -> bool:
    """Return whether a file ends with the checksum of everything before."""
    digest = _digest(path)
    remaining = os.fstat(file.fileno()).st_size - CHECKSUM_BYTES
    while remaining > 0:
        part = file.read(min(READ_BYTES, remaining))
        digest.update(part)
        remaining -= len(part) or remaining  # it may have been truncated meanwhile
    return file.read() == digest.digest()


def _checksum(path: Path, body: Any) -> bytes:
    digest = _digest(path)
    digest.update(body)
    return digest.digest()


def _digest(path: Path) -> Any:
    # A chain's folder belongs to the name of its blocks: one of another chain is no block of this.
    name = f"{path.parent.name}/{path.name}" if path.stem.isdigit() else path.name
    return hashlib.blake2b(digest_size=CHECKSUM_BYTES, key=name.encode()[-64:])


def json_array(content: Any) -> np.ndarray:
    """Return plain data as an array of bytes, to be stored with other arrays."""
    return np.frombuffer(json.dumps(content, default=float).encode(), np.uint8)


def from_json_array(array: np.ndarray) -> Any:
    """Invert `json_array`."""
    return json.loads(array.tobytes())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write plain data with a checksum."""
    plain = _plain(content)
    write(path, json.dumps({"checksum": _json_checksum(plain), **plain}, indent=1).encode())


def has_json(path: Path, content: Mapping[str, Any]) -> bool:
    """Return whether a file holds this plain data, unaltered."""
    try:
        return read_json(path) == _plain(content)
    except (OSError, ValueError):
        return False


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as they are read from a file."""
    return json.loads(json.dumps(content, default=float))


def read_json(path: Path) -> dict[str, Any]:
    """Return the plain data of a file; raise a `ValueError` if it was truncated or altered."""
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict) or content.pop("checksum", None) != _json_checksum(content):
        raise ValueError("its checksum is wrong")
    return content


def _json_checksum(content: Any) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=CHECKSUM_BYTES).hexdigest()
