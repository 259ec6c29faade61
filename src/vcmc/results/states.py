"""The history of a run directory: its states, each with the rows that were known then.

```
runs/flights/
  …                    state 0: the run that `infer` made (`store.py`)
  updates/
    current.json       number of the current state; replaced in one step
    0000/state.json    what state 0 is, written when the first update is made
    0003/              the third update, or what a deletion of rows left; a run directory of its own
      request.json     what was asked for, so that the same call goes on
      rows/            rows of the shards that were sampled then
      run.json, draws/ their identity and draws
      locals/          local draws of a model with groups
      tree.npz         the result, with all shards
      state.json       what the state is; written last: without it, the update is not complete
```

A state is a list of shards, each named by the update that sampled it and its number there. Files of
complete states are never changed, so any state can be restored. A deletion of rows copies the
shards that are left to a folder of its own, and then deletes all other states.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..data.row_digest import RowDigest
from ..errors import StoreError
from .checked_files import has_json, make_folder, read_json, write_json
from .store import DRAWS, LABELS, LOCALS, SETTINGS, TREE, Store

UPDATES, CURRENT, STATE, REQUEST = "updates", "current.json", "state.json", "request.json"
ROWS = "rows"
REPORT = "report.html"  # that `vcmc run` writes beside the result
ELSEWHERE = "rows-elsewhere.json"  # names the folder of rows that the user has split
ORIGINAL = 0  # the state that `infer` made


class ShardName(NamedTuple):
    """A shard of a state: the update that sampled it, and its number there."""

    update: int
    number: int


class KnownFacts(NamedTuple):
    """What is known of a shard from the update that sampled it.

    Attributes:
        num_rows: rows of positive weight.
        silent: numbers of the coordinates that its log likelihood does not depend on.
    """

    num_rows: int
    silent: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """A state of a run directory.

    Attributes:
        number: its number.
        parent: the state that it was made from; none for the first.
        action: "run", "update" or "forget".
        name: the name of the rows that were added.
        time: when it was complete, in UTC.
        num_rows: rows that were added, or, with a minus, deleted.
        total_rows: rows of all shards.
        verdict: the verdict on the result.
        shards: its shards.
        batches: for every shard, the number of the state that brought its rows.
        shapes: for every shard, the numbers of its chains and of their draws.
        digest: of the rows that were added.
        model: what identifies the model.
        settings: the arguments that later updates repeat.
        facts: for every shard, what later updates need not compute again; none if it is unknown.
    """

    number: int
    parent: int | None
    action: str
    name: str
    time: str
    num_rows: int
    total_rows: int
    verdict: str
    shards: tuple[ShardName, ...]
    batches: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]
    digest: RowDigest
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    facts: tuple[KnownFacts, ...] = ()

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> "State":
        """Return the state that a file describes."""
        return cls(
            **{
                **content,
                "shards": tuple(ShardName(*name) for name in content["shards"]),
                "batches": tuple(content["batches"]),
                "shapes": tuple((chains, draws) for chains, draws in content["shapes"]),
                "digest": RowDigest(*content["digest"]),
                "facts": tuple(
                    KnownFacts(num_rows, tuple(silent))
                    for num_rows, silent in content.get("facts", ())
                ),
            }
        )


class History:
    """The states of a run directory."""

    def __init__(self, store: Store):
        self.store = store
        self.folder = store.folder / UPDATES

    def run(self, number: int) -> Store:
        """Return the run directory of a state's own shards."""
        return self.store if number == ORIGINAL else Store(self.folder / f"{number:04}")

    @property
    def current(self) -> int:
        """Number of the current state."""
        return int(self._pointer().get("state", ORIGINAL))

    def is_plain(self) -> bool:
        """Return whether there was never an update."""
        return not (self.folder / CURRENT).exists()

    def states(self) -> list[State]:
        """Return all complete states, in the order of their numbers."""
        paths = sorted(self.folder.glob(f"*/{STATE}"))
        return [self._read(path) for path in paths]

    def state(self, number: int) -> State:
        """Return a complete state."""
        path = self.folder / f"{number:04}" / STATE
        if not path.exists():
            known = [state.number for state in self.states()]
            raise StoreError(
                f"{self.store.folder} has no state {number}; it has the states {known or [0]}."
            )
        return self._read(path)

    def lineage(self, number: int) -> list[State]:
        """Return the states that led to a state, from the first, with itself."""
        states = {state.number: state for state in self.states()}
        found = []
        following: int | None = number
        while following in states:
            found.append(states[following])
            following = states[following].parent
        return found[::-1]

    def next_number(self) -> int:
        """Return the number of the next state."""
        return max((state.number for state in self.states()), default=ORIGINAL) + 1

    def begin(self, number: int, request: Mapping[str, Any]) -> bool:
        """Begin a state, or go on with one that was begun by the same request; return whether.

        What another request left is deleted.
        """
        folder = self.run(number).folder
        path = folder / REQUEST
        plain = _plain_request(request)
        if has_json(path, plain):
            return True
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        write_json(path, plain)
        return False

    def complete_number(self, request: Mapping[str, Any]) -> int | None:
        """Return the number of the complete state that answers a request, if there is one."""
        plain = _plain_request(request)
        for state in self.states():
            path = self.run(state.number).folder / REQUEST
            if state.number != ORIGINAL and has_json(path, plain):
                return state.number
        return None

    def discard(self, number: int) -> None:
        """Delete a state that is not complete."""
        shutil.rmtree(self.run(number).folder, ignore_errors=True)

    def write(self, state: State) -> None:
        """Record a state whose files are all written."""
        write_json(self.folder / f"{state.number:04}" / STATE, asdict(state))

    def go_to(self, number: int, *, is_purge_due: bool = False) -> None:
        """Make a state the current one."""
        pointer = {"state": number, "is_purge_due": is_purge_due}
        write_json(self.folder / CURRENT, pointer)

    @property
    def is_purge_due(self) -> bool:
        """Whether rows are to be deleted that a state which was just made does not have."""
        return bool(self._pointer().get("is_purge_due", False))

    def purge(self) -> None:
        """Delete everything but the current state, whose folder has all of its shards."""
        current = self.current
        keep = self.run(current).folder
        root = self.store.folder
        for name in (TREE, LABELS, SETTINGS, ELSEWHERE, REPORT):
            (root / name).unlink(missing_ok=True)
        for name in (DRAWS, LOCALS, ROWS):
            if (root / name).exists():
                shutil.rmtree(root / name)
        for folder in self.folder.iterdir():
            if folder.is_dir() and folder != keep:
                shutil.rmtree(folder)
        for path in [*root.glob(".*.new"), *self.folder.glob(".*.new")]:
            path.unlink(missing_ok=True)
        self.go_to(current)

    def _pointer(self) -> dict[str, Any]:
        path = self.folder / CURRENT
        try:
            return read_json(path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{path} cannot be read ({error}). Restore a state: vcmc.restore(store, number)."
            ) from None

    def _read(self, path: Path) -> State:
        try:
            return State.from_plain(read_json(path))
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise StoreError(
                f"{path} cannot be read ({error}). Restore it from a backup, or go back to another "
                "state: vcmc.restore(store, number)."
            ) from None


def _plain_request(request: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(dict(request), default=str))


def check_not_reduced(store: Store) -> None:
    """Refuse to resume the first run of a directory from which rows were deleted."""
    if not History(store).is_plain() and not (store.folder / SETTINGS).exists():
        raise StoreError(
            f"rows were deleted from {store.folder}, and with them the run that infer made. "
            "vcmc.load returns the current result, vcmc.update adds rows; for another run use "
            "another folder."
        )


def current_run(folder: str | Path) -> Store:
    """Return the run directory that has the current result of a run directory."""
    history = History(Store(folder))
    return history.run(history.current)
