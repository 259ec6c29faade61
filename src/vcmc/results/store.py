"""The run directory: draws are stored block by block as they are sampled, so a run can be resumed.

```
runs/big/
  run.json             identity of the run: settings, checksums of the shards, and the model's log
                       density at some points
  labels.npz           names and labels of the axes of parameters, if there are any
  lock                 locked by the process that runs; says which
  rows/                rows that were split batch by batch
  draws/run.json       a copy of run.json
  draws/00003-0/       shard 3, chain 0
    00000.npz …        blocks
    checkpoint.npz     state of the chain after the last whole block
    checkpoint-synced.npz  the same after the last block that was forced to the disk
  locals/              local draws of a model with groups (`local_files.py`)
  tree.npz             the result, draws and verdict in one file
```

All files hold plain data, with checksums (`checked_files.py`); none is unpickled. A block that
cannot be read is sampled again.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import StoreError
from ..samplers.state import NotPlain, PackedState, pack_state
from .checked_files import (
    Arrays,
    from_json_array,
    has_json,
    json_array,
    read_arrays,
    read_json,
    sync_files,
    write_arrays,
    write_json,
)
from .local_files import LocalsFolder

SETTINGS, LABELS, TREE, DRAWS = "run.json", "labels.npz", "tree.npz", "draws"
LOCALS = "locals"
LOCAL_DRAWS = "local_draws"  # the attribute of a result that says where its local draws are
STATE, SYNCED_STATE = "checkpoint.npz", "checkpoint-synced.npz"
SYNC_SECONDS = 2.0  # a block takes milliseconds to sample, and about as many to sync
FORMAT = 2  # of the files of a run directory
ABOUT = "about"  # the array of a file that holds plain data in JSON
# Packages that may change the meaning of a sampler's state.
STATE_PACKAGES = ("vcmc", "jax", "jaxlib", "blackjax", "numpy")


Groups = dict[str, dict[str, np.ndarray]]


class StateNotStored(Exception):
    """A chain has no state from which it can be continued; the message says why."""


@dataclass(frozen=True)
class ChainFolder:
    """The folder with the blocks of one chain."""

    path: Path

    def blocks(self) -> list[Arrays]:
        """Return the blocks, up to the first that is missing or damaged."""
        blocks: list[Arrays] = []
        while (arrays := read_arrays(self._file(len(blocks)))) is not None:
            blocks.append(arrays)
        return blocks

    def state(self, num_blocks: int) -> tuple[int, PackedState]:
        """Return the last state that is after at most `num_blocks` blocks, and after how many.

        Raise `StateNotStored` if there is none, or if it is of another version.
        """
        stored = [_read_state(self.path / name) for name in (STATE, SYNCED_STATE)]
        states = [about for about in stored if about and 0 < about[0]["num_blocks"] <= num_blocks]
        if not any(stored):
            raise StateNotStored("the state of the chain is missing or damaged")
        if not states:
            raise StateNotStored(f"block {num_blocks} is missing or damaged")
        about, arrays = max(states, key=lambda state: state[0]["num_blocks"])
        if about["versions"] != state_versions():
            changed = set(about["versions"].items()) ^ set(state_versions().items())
            packages = ", ".join(sorted({name for name, _ in changed}))
            raise StateNotStored(f"the state of the chain is from another version of {packages}")
        if about["not_plain"]:
            raise StateNotStored(f"the sampler's state cannot be stored ({about['not_plain']})")
        return about["num_blocks"], PackedState(arrays, about["state"])

    def write_whole(self, arrays: Arrays) -> None:
        """Store all draws of a chain that will not be continued as one block."""
        write_arrays(self._file(0), arrays)

    def is_new(self) -> bool:
        """Return whether nothing was stored, or only the first block and not yet its state."""
        return {path.name for path in self.path.glob("*.npz")} <= {self._file(0).name}

    def _file(self, number: int) -> Path:
        return self.path / f"{number:05}.npz"


class ChainWriter:
    """Write the blocks of one chain, and force them to the disk every few seconds.

    A process that is killed loses nothing. A machine that is switched off loses the blocks since
    `SYNCED_STATE` was written, and perhaps damages them.
    """

    def __init__(self, folder: ChainFolder):
        self._folder = folder
        self._state: Arrays = {}
        self._unsynced: list[Path] = []
        self._synced_at = time.monotonic()

    def write(self, number: int, arrays: Arrays, state: Any, *, is_last: bool) -> None:
        """Store a block, and the state of the chain after it, unless it is None.

        The last block of a chain may be short: the state before it is kept, from which a longer
        chain is continued.
        """
        self._unsynced.append(self._folder._file(number))
        write_arrays(self._unsynced[-1], arrays, is_synced=False)
        if state is not None:
            self._state = _pack(number + 1, state)
            write_arrays(self._folder.path / STATE, self._state, is_synced=False)
        if is_last or time.monotonic() - self._synced_at > SYNC_SECONDS:
            sync_files(self._unsynced)
            if self._state:
                write_arrays(self._folder.path / SYNCED_STATE, self._state)
            self._unsynced, self._synced_at = [], time.monotonic()


def _pack(num_blocks: int, state: Any) -> Arrays:
    """Return the arrays of a state after some blocks."""
    about: dict[str, Any] = {"num_blocks": num_blocks, "versions": state_versions()}
    try:
        packed = pack_state(state)
    except NotPlain as reason:
        return {ABOUT: json_array(about | {"not_plain": str(reason)})}
    about |= {"not_plain": "", "state": packed.description}
    return {**packed.arrays, ABOUT: json_array(about)}


def _read_state(path: Path) -> tuple[dict[str, Any], Arrays] | None:
    arrays = read_arrays(path)
    if arrays is None or ABOUT not in arrays:
        return None
    return from_json_array(arrays.pop(ABOUT)), arrays


@cache
def state_versions() -> dict[str, str]:
    """Return the versions of the packages that a state depends on."""
    return {name: version(name) for name in STATE_PACKAGES}


class Store:
    """A run directory."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()

    @property
    def rows(self) -> Path:
        """The folder of rows that were split batch by batch."""
        return self.folder / "rows"

    @property
    def locals(self) -> LocalsFolder:
        """The folder of local draws."""
        return LocalsFolder(self.folder / LOCALS)

    def chain(self, shard: int, chain: int, attempt: int = 0) -> ChainFolder:
        """Return the folder of one chain."""
        again = f"-again-{attempt}" if attempt else ""
        return ChainFolder(self.folder / DRAWS / f"{shard:05}-{chain}{again}")

    def chains(self, shard: int) -> list[ChainFolder]:
        """Return the folders of a shard's chains, each of the last attempt."""
        latest: dict[str, Path] = {}
        for path in sorted((self.folder / DRAWS).glob(f"{shard:05}-*")):
            latest[path.name.split("-")[1]] = path
        return [ChainFolder(path) for path in latest.values()]

    def record(self, settings: Mapping[str, Any], labels: Groups) -> None:
        """Write the identity of the run, twice, and the dims and coords of its parameters."""
        content = {"format": FORMAT, **settings}
        for path in self._settings_files:
            if not has_json(path, content):  # a full disk need not end a resumed run here
                write_json(path, content)
        if labels:
            write_arrays(self.folder / LABELS, _flat(labels))

    def labels(self) -> Groups:
        """Return the dims and coords of the parameters, if there are any."""
        return _grouped(read_arrays(self.folder / LABELS) or {})

    def settings(self) -> dict[str, Any] | None:
        """Return the recorded identity of the run, or None if there is no run.

        A file that is lost or damaged is read from its copy.
        """
        problems = {}
        for path in self._settings_files:
            try:
                settings = read_json(path)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                problems[path] = error
                continue
            if settings.pop("format", None) == FORMAT:
                return settings
            raise self._other_version()
        if problems and _is_older(self.folder / SETTINGS):
            raise self._other_version()
        for path, problem in problems.items():
            raise StoreError(
                f"{path} cannot be read ({problem}), nor can its copy. Restore it from a backup, "
                "or use another folder."
            )
        if any((self.folder / DRAWS).glob("*")):
            raise StoreError(
                f"{self.folder} cannot be resumed: it has draws but no {SETTINGS}, which "
                "identifies the run. Restore the file, or use another folder."
            )
        return None

    @property
    def _settings_files(self) -> tuple[Path, Path]:
        return self.folder / SETTINGS, self.folder / DRAWS / SETTINGS

    def _other_version(self) -> StoreError:
        return StoreError(
            f"{self.folder} was written by another version of vcmc, whose run directories this "
            f"version ({version('vcmc')}) does not read. Use another folder, or that version."
        )

    def save_tree(
        self, groups: Groups, attributes: Mapping[str, Any], request: Mapping[str, Any]
    ) -> None:
        """Store a result, and the request that it answers."""
        about = json_array({"attributes": dict(attributes), "request": dict(request)})
        write_arrays(self.folder / TREE, {**_flat(groups), ABOUT: about})

    def load_tree(self) -> tuple[Groups, dict[str, Any], dict[str, Any]] | None:
        """Return groups, attributes and request of the result; None if missing or damaged."""
        arrays = read_arrays(self.folder / TREE)
        if arrays is None or ABOUT not in arrays:
            return None
        about = from_json_array(arrays.pop(ABOUT))
        attributes = about["attributes"]
        if LOCAL_DRAWS in attributes:  # the run directory may have been moved
            attributes[LOCAL_DRAWS] = str(self.locals.path)
        return _grouped(arrays), attributes, about["request"]


def _flat(groups: Groups) -> Arrays:
    """Return the arrays of all groups, named `group/name`."""
    return {
        f"{group}/{name}": np.asarray(values)
        for group, arrays in groups.items()
        for name, values in arrays.items()
    }


def _grouped(arrays: Arrays) -> Groups:
    """Invert `_flat`."""
    groups: Groups = {}
    for name, values in arrays.items():
        group, variable = name.split("/", 1)
        groups.setdefault(group, {})[variable] = values
    return groups


def _is_older(path: Path) -> bool:
    """Return whether a file is the run.json of vcmc 0.1, whose run directories had pickles."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "checksum" not in content and "shards" in content
