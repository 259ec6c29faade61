"""A run directory: draws land there block by block as they are made, and a run that was stopped goes on from there.

```
runs/big/
  run.json             what is sampled: settings, checksums of shards, the model's log density at some points
  space.pickle         where the parameters live
  rows/                rows that were dealt batch by batch
  draws/00003-0/       shard 3, chain 0
    00000.npz …        its blocks; NumPy's files have a checksum for each array
    state.pickle       where the chain got to
  tree.npz  tree.json  the result
```

A file is written under another name and then renamed, so that it is whole or not there. A block that cannot be read is made again.
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

SETTINGS, SPACE, TREE = "run.json", "space.pickle", "tree"
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class ChainFolder:
    """Where the blocks of one chain are kept."""

    path: Path

    def blocks(self) -> list[Arrays]:
        """The blocks from the first on, up to one that is not there or not sound."""
        found: list[Arrays] = []
        while (arrays := _loaded(self._file(len(found)))) is not None:
            found.append(arrays)
        return found

    def state(self, num_blocks: int) -> Any:
        """The state of the chain after so many blocks; nothing if it is not known."""
        try:
            kept = (self.path / "state.pickle").read_bytes()
        except OSError:
            return None
        checksum, body = kept[:4], kept[4:]
        if zlib.crc32(body).to_bytes(4, "big") != checksum:
            return None
        count, state = pickle.loads(body)
        return state if count == num_blocks else None

    def write(self, number: int, arrays: Mapping[str, np.ndarray], state: Any) -> None:
        """Keep a block, and the state after it."""
        body = pickle.dumps((number + 1, state))
        self.path.mkdir(parents=True, exist_ok=True)
        write(self._file(number), lambda path: np.savez(path, allow_pickle=False, **arrays))
        whole = zlib.crc32(body).to_bytes(4, "big") + body
        write(self.path / "state.pickle", lambda path: path.write_bytes(whole))

    def finish(self) -> None:
        """The chain is complete: its state is not needed any more."""
        (self.path / "state.pickle").unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.path / f"{number:05}.npz"


def write(path: Path, make: Callable[[Path], Any]) -> None:
    """Write a file that is whole or not there."""
    new = path.with_name(f"{path.stem}.{os.getpid()}.new{path.suffix}")
    try:
        make(new)
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise StoreError(
            f"{path} could not be written: {error.strerror or error}. What was written before is kept: make room, or mend what is wrong "
            "with the disk, and make the same call again to go on from there."
        ) from error


def _loaded(path: Path) -> Arrays | None:
    """A file's arrays; nothing if it is not there, or was cut off or changed."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
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
                f"store must be a folder that can be made or written to; got {self.folder} ({error.strerror})."
            ) from None

    @property
    def rows(self) -> Path:
        """Where rows are dealt that are read batch by batch."""
        return self.folder / "rows"

    def chain(self, shard: int, chain: int, attempt: int = 0) -> ChainFolder:
        """Where the blocks of one chain are kept."""
        again = f"-again-{attempt}" if attempt else ""
        return ChainFolder(self.folder / "draws" / f"{shard:05}-{chain}{again}")

    def chains(self, shard: int) -> list[ChainFolder]:
        """Where the chains of a shard are kept, each as it was made last."""
        latest: dict[str, Path] = {}
        for path in sorted((self.folder / "draws").glob(f"{shard:05}-*")):
            latest[path.name.split("-")[1]] = path
        return [ChainFolder(path) for path in latest.values()]

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Write down what is sampled, or see that it is what was sampled before."""
        now = json.loads(json.dumps(settings))
        path = self.folder / SETTINGS
        if not path.exists():
            if any((self.folder / "draws").glob("*")):
                raise StoreError(
                    f"{self.folder} has draws but no {SETTINGS}, so that nobody knows what they are of."
                )
            write(path, lambda new: new.write_text(json.dumps(now, indent=1)))
            return
        before = self.settings()
        differ = [name for name in now | before if now.get(name) != before.get(name)]
        if differ:
            raise StoreError(
                f"{self.folder} holds another run: "
                + "; ".join(_difference(name, before.get(name), now.get(name)) for name in differ)
                + ". Use another folder for this run, or go back to what it was."
            )

    def settings(self) -> dict[str, Any]:
        """What is sampled."""
        path = self.folder / SETTINGS
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise StoreError(
                f"{self.folder} is not a run directory: there is no {SETTINGS} in it."
            ) from None
        except ValueError as error:
            raise StoreError(
                f"{path} cannot be read ({error}). Put back a copy, or use another folder."
            ) from None

    def save_space(self, space: Any) -> None:
        """Keep where the parameters live, so that draws can be read without the model."""
        write(self.folder / SPACE, lambda path: path.write_bytes(cloudpickle.dumps(space)))

    def space(self) -> Any:
        """Where the parameters live."""
        try:
            return pickle.loads((self.folder / SPACE).read_bytes())
        except Exception as error:  # pickle raises anything
            raise StoreError(
                f"{self.folder / SPACE} cannot be read ({type(error).__name__}: {error}). Make the same call of infer again: it writes the "
                "file anew."
            ) from None

    def save_tree(
        self, groups: Mapping[str, Mapping[str, np.ndarray]], attributes: Mapping[str, Any]
    ) -> None:
        """Keep a result."""
        arrays = {
            f"{group}/{name}": values
            for group, each in groups.items()
            for name, values in each.items()
        }
        write(
            self.folder / f"{TREE}.npz", lambda path: np.savez(path, allow_pickle=False, **arrays)
        )
        text = json.dumps(dict(attributes), default=float)
        write(self.folder / f"{TREE}.json", lambda path: path.write_text(text))

    def load_tree(self) -> tuple[dict[str, Arrays], dict[str, Any]] | None:
        """Groups and attributes of a result; nothing if there is none, or if it is not sound."""
        arrays = _loaded(self.folder / f"{TREE}.npz")
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
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        places = [
            place for place, (old, new) in enumerate(zip(before, now, strict=True)) if old != new
        ]
        return f"{name} differs at {places[:5]}" + (
            f" and {len(places) - 5} more" if len(places) > 5 else ""
        )
    return f"{name} was {before!r} and is {now!r}"
