"""The run directory: draws are stored block by block as they are sampled, so a run can be resumed.

```
runs/big/
  run.json             identity of the run: settings, checksums of the shards, and the model's log
                       density at some points
  space.pickle         the space of the parameters
  rows/                rows that were split batch by batch
  draws/00003-0/       shard 3, chain 0
    00000.npz …        blocks; NumPy files have a checksum for each array
    state.pickle       state of the chain after the last block
  tree.npz  tree.json  the result
```

A file is written under a temporary name and then renamed: it is complete, or it does not exist. A
block that cannot be read is sampled again.
"""

import contextlib
import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from ..errors import StoreError

SETTINGS, SPACE, STATE, TREE = "run.json", "space.pickle", "state.pickle", "tree"
MAX_POSITIONS = 5  # of a list that differs, named in an error
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ChainFolder:
    """The folder with the blocks of one chain."""

    path: Path

    def blocks(self) -> list[Arrays]:
        """Return the blocks, up to the first that is missing or damaged."""
        blocks: list[Arrays] = []
        while (arrays := _load_arrays(self._file(len(blocks)))) is not None:
            blocks.append(arrays)
        return blocks

    def state(self, num_blocks: int) -> Any:
        """Return the state of the chain after `num_blocks` blocks, or None if it is not known."""
        try:
            content = (self.path / STATE).read_bytes()
        except OSError:
            return None
        checksum, body = content[:4], content[4:]
        if zlib.crc32(body).to_bytes(4, "big") != checksum:
            return None
        count, state = pickle.loads(body)
        return state if count == num_blocks else None

    def write(self, number: int, arrays: Mapping[str, np.ndarray], state: Any) -> None:
        """Store a block, and the state of the chain after it."""
        body = pickle.dumps((number + 1, state))
        self.path.mkdir(parents=True, exist_ok=True)
        write(self._file(number), lambda path: np.savez(path, allow_pickle=False, **arrays))
        content = zlib.crc32(body).to_bytes(4, "big") + body
        write(self.path / STATE, lambda path: path.write_bytes(content))

    def finish(self) -> None:
        """Delete the state, which a complete chain no longer needs."""
        (self.path / STATE).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.path / f"{number:05}.npz"


def write(path: Path, make: Callable[[Path], Any]) -> None:
    """Write a file atomically: `make` writes it under a temporary name."""
    new = path.with_name(f"{path.stem}.{os.getpid()}.new{path.suffix}")
    try:
        make(new)
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise StoreError(
            f"{path} could not be written: {error.strerror or error}. Everything written before is "
            "kept: free disk space or fix the disk, then repeat the same call to resume the run."
        ) from error


def _load_arrays(path: Path) -> Arrays | None:
    """Return the arrays of a file, or None if it is missing, truncated or altered."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None


class Store:
    """A run directory."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"store must be a folder that can be created or written to; got {self.folder} "
                f"({error.strerror})."
            ) from None

    @property
    def rows(self) -> Path:
        """The folder of rows that were split batch by batch."""
        return self.folder / "rows"

    def chain(self, shard: int, chain: int, attempt: int = 0) -> ChainFolder:
        """Return the folder of one chain."""
        again = f"-again-{attempt}" if attempt else ""
        return ChainFolder(self.folder / "draws" / f"{shard:05}-{chain}{again}")

    def chains(self, shard: int) -> list[ChainFolder]:
        """Return the folders of a shard's chains, each of the last attempt."""
        latest: dict[str, Path] = {}
        for path in sorted((self.folder / "draws").glob(f"{shard:05}-*")):
            latest[path.name.split("-")[1]] = path
        return [ChainFolder(path) for path in latest.values()]

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Record the identity of the run; if one is recorded, raise unless it is the same."""
        now = json.loads(json.dumps(settings))
        path = self.folder / SETTINGS
        if not path.exists():
            if any((self.folder / "draws").glob("*")):
                raise StoreError(
                    f"{self.folder} cannot be resumed: it has draws but no {SETTINGS}, which "
                    "identifies the run. Restore the file, or use another folder."
                )
            write(path, lambda new: new.write_text(json.dumps(now, indent=1)))
            return
        before = self.settings()
        differ = [name for name in now | before if now.get(name) != before.get(name)]
        if differ:
            raise StoreError(
                f"{self.folder} holds another run: "
                + "; ".join(_difference(name, before.get(name), now.get(name)) for name in differ)
                + ". Use another folder, or repeat the original call to resume that run."
            )

    def settings(self) -> dict[str, Any]:
        """Return the recorded identity of the run."""
        path = self.folder / SETTINGS
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise StoreError(
                f"{self.folder} is not a run directory: it has no {SETTINGS}."
            ) from None
        except ValueError as error:
            raise StoreError(
                f"{path} cannot be read ({error}). Restore it from a copy, or use another folder."
            ) from None

    def save_space(self, space: Any) -> None:
        """Store the space of the parameters, so that draws can be read without the model."""
        write(self.folder / SPACE, lambda path: path.write_bytes(cloudpickle.dumps(space)))

    def space(self) -> Any:
        """Return the space of the parameters."""
        try:
            return pickle.loads((self.folder / SPACE).read_bytes())
        except Exception as error:  # pickle raises anything
            raise StoreError(
                f"{self.folder / SPACE} cannot be read ({type(error).__name__}: {error}). "
                "Repeat the same call of infer, which writes the file again."
            ) from None

    def save_tree(
        self, groups: Mapping[str, Mapping[str, np.ndarray]], attributes: Mapping[str, Any]
    ) -> None:
        """Store a result."""
        arrays = {
            f"{group}/{name}": values
            for group, variables in groups.items()
            for name, values in variables.items()
        }
        write(
            self.folder / f"{TREE}.npz", lambda path: np.savez(path, allow_pickle=False, **arrays)
        )
        text = json.dumps(dict(attributes), default=float)
        write(self.folder / f"{TREE}.json", lambda path: path.write_text(text))

    def load_tree(self) -> tuple[dict[str, Arrays], dict[str, Any]] | None:
        """Return groups and attributes of the result, or None if it is missing or damaged."""
        arrays = _load_arrays(self.folder / f"{TREE}.npz")
        try:
            attributes = json.loads((self.folder / f"{TREE}.json").read_text())
        except (OSError, ValueError):
            return None
        if arrays is None:
            return None
        groups: dict[str, Arrays] = {}
        for name, values in arrays.items():
            group, variable = name.split("/", 1)
            groups.setdefault(group, {})[variable] = values
        return groups, attributes


def _difference(name: str, before: Any, now: Any) -> str:
    """Describe how a setting differs; of long lists, name the first few positions."""
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now, strict=True))
        positions = [position for position, (old, new) in pairs if old != new]
        more = f" and {len(positions) - MAX_POSITIONS} more"
        return f"{name} differs at {positions[:MAX_POSITIONS]}" + (
            more if len(positions) > MAX_POSITIONS else ""
        )
    return f"{name} was {before!r} and is {now!r}"
