"""Fingerprints of files and arrays, by which a change of their contents is noticed.

A fingerprint is plain data: size or shape, a checksum of all contents, a checksum of a sample of
them, and the time of the last modification. The time decides only how much is read again: a large
file that was not modified is compared by the sample, and one that was touched or copied by all of
its contents.

>>> fingerprint_arrays({"y": np.arange(3)})["y"]["content"]
['<i8', [3]]
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._runtime import thread_map

BLOCK_BYTES = 2**22  # that are read and hashed at once
MAX_SAMPLED_BLOCKS = 64  # up to these, 256 MB, the sample is everything

Fingerprint = dict[str, Any]


def fingerprint_files(root: Path, files: Iterable[Path]) -> dict[str, Fingerprint]:
    """Return the fingerprints of files by their names below `root`, which may be the only file."""
    return _fingerprints(_files(root, files))


def fingerprint_arrays(arrays: Mapping[str, Any]) -> dict[str, Fingerprint]:
    """Return the fingerprints of arrays by name; they are read slice by slice."""
    return _fingerprints(_arrays(arrays))


def changed_files(
    before: Mapping[str, Fingerprint], root: Path, files: Iterable[Path]
) -> list[str]:
    """Return the names of files that were changed, added or removed since their fingerprints."""
    return _changed(before, _files(root, files))


def changed_arrays(before: Mapping[str, Fingerprint], arrays: Mapping[str, Any]) -> list[str]:
    """Return the names of arrays that were changed, added or removed since their fingerprints."""
    return _changed(before, _arrays(arrays))


class _Content(Protocol):
    """Contents that are read in blocks."""

    @property
    def kind(self) -> list[Any]:
        """Size, or type and shape, as JSON."""

    @property
    def modified(self) -> int | None:
        """Time of the last modification in nanoseconds; None if it is not known."""

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""

    def block(self, number: int) -> Any:
        """Return one block as bytes."""


@dataclass(frozen=True)
class _File:
    path: Path

    @cached_property
    def _status(self) -> os.stat_result:
        return self.path.stat()

    @property
    def kind(self) -> list[Any]:
        return [self._status.st_size]

    @property
    def modified(self) -> int | None:
        return self._status.st_mtime_ns

    @property
    def num_blocks(self) -> int:
        return -(-self._status.st_size // BLOCK_BYTES)

    def block(self, number: int) -> Any:
        with self.path.open("rb") as file:
            file.seek(number * BLOCK_BYTES)
            return file.read(BLOCK_BYTES)


@dataclass(frozen=True)
class _Array:
    array: Any

    @property
    def kind(self) -> list[Any]:
        return [np.dtype(self.array.dtype).str, list(self.array.shape)]

    @property
    def modified(self) -> int | None:
        file = _mapped_file(self.array)
        return file.stat().st_mtime_ns if file else None

    @cached_property
    def _rows_per_block(self) -> int:
        entries = int(np.prod(self.array.shape[1:]))
        return max(1, BLOCK_BYTES // max(1, entries * np.dtype(self.array.dtype).itemsize))

    @property
    def num_blocks(self) -> int:
        return -(-self.array.shape[0] // self._rows_per_block)

    def block(self, number: int) -> Any:
        first = number * self._rows_per_block
        rows = np.ascontiguousarray(self.array[first : first + self._rows_per_block])
        return rows.reshape(-1).view(np.uint8)


def _files(root: Path, files: Iterable[Path]) -> dict[str, _Content]:
    return {
        "" if path == root else path.relative_to(root).as_posix(): _File(path) for path in files
    }


def _arrays(arrays: Mapping[str, Any]) -> dict[str, _Content]:
    return {str(name): _Array(array) for name, array in arrays.items()}


def _mapped_file(array: Any) -> Path | None:
    """Return the file that a memory-mapped array, or a view of one, is in."""
    while array is not None:
        if isinstance(array, np.memmap) and array.filename:
            path = Path(array.filename)
            return path if path.exists() else None
        array = getattr(array, "base", None)
    return None


def _fingerprints(contents: Mapping[str, _Content]) -> dict[str, Fingerprint]:
    return {name: _fingerprint(content) for name, content in sorted(contents.items())}


def _fingerprint(content: _Content) -> Fingerprint:
    modified = content.modified  # before it is read: a later change is noticed
    return {
        "content": content.kind,
        "modified": modified,
        "sample": _checksum(content, _sampled(content.num_blocks)),
        "checksum": _checksum(content, range(content.num_blocks)),
    }


def _changed(before: Mapping[str, Fingerprint], contents: Mapping[str, _Content]) -> list[str]:
    return [
        name
        for name in sorted({*before, *contents})
        if name not in before
        or name not in contents
        or not _is_unchanged(before[name], contents[name])
    ]


def _is_unchanged(before: Fingerprint, content: _Content) -> bool:
    if before["content"] != content.kind:
        return False
    if content.modified is not None and content.modified == before["modified"]:
        return before["sample"] == _checksum(content, _sampled(content.num_blocks))
    return before["checksum"] == _checksum(content, range(content.num_blocks))


def _sampled(num_blocks: int) -> Sequence[int]:
    """Return the numbers of evenly spaced blocks, the first and the last among them."""
    if num_blocks <= MAX_SAMPLED_BLOCKS:
        return range(num_blocks)
    return np.linspace(0, num_blocks - 1, MAX_SAMPLED_BLOCKS).astype(int).tolist()


def _checksum(content: _Content, blocks: Sequence[int]) -> str:
    """Return a hash of the hashes of some blocks, which threads compute."""
    hashes = thread_map(lambda number: _hash(content.block(number)), blocks)
    return _hash(b"".join(hashes)).hex()


def _hash(content: Any) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
