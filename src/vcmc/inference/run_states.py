"""The verbs `history` and `restore`: what a run directory went through, and going back."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StoreError
from ..results.loading import load
from ..results.lock import locked
from ..results.states import ORIGINAL, History, State
from ..results.store import Store

if TYPE_CHECKING:
    from xarray import DataTree

HEADER = ("state", "from", "time", "what", "name", "rows", "all rows", "shards", "verdict")


@dataclass(frozen=True)
class RunStates:
    """The states of a run directory, which prints as a table.

    Attributes:
        states: the states, in the order in which they were made.
        current: the number of the current one.
    """

    states: tuple[State, ...]
    current: int

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, place: int) -> State:
        return self.states[place]

    def __str__(self) -> str:
        rows = [HEADER, *(self._cells(state) for state in self.states)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _cells(self, state: State) -> tuple[str, ...]:
        return (
            f"{state.number}{' *' if state.number == self.current else ''}",
            "" if state.parent is None else str(state.parent),
            state.time,
            state.action,
            state.name,
            f"{state.num_rows:+d}",
            str(state.total_rows),
            str(len(state.shards)),
            state.verdict,
        )


def history(store: str | Path) -> RunStates:
    """Return the states of a run directory: what was added or deleted when, and the verdicts.

    Print it for a table, in which a star marks the current state.

    Args:
        store: the run directory.
    """
    run = _run(store)
    states = History(run)
    if states.is_plain():
        return RunStates((_original(run),), ORIGINAL)
    return RunStates(tuple(states.states()), states.current)


def restore(store: str | Path, number: int) -> "DataTree":
    """Go back, or forward, to a state of a run directory, and return its result.

    Later updates begin there. States are kept: any of them can be restored, unless rows were
    deleted since.

    Args:
        store: the run directory.
        number: the number of the state, as `vcmc.history` lists it.
    """
    run = _run(store)
    with locked(run.folder):
        states = History(run)
        if states.is_purge_due:
            states.purge()
        if not (states.is_plain() and number == ORIGINAL):
            states.state(number)  # raises an error if there is none
            states.go_to(number)
    return load(store)


def _run(store: str | Path) -> Store:
    run = Store(store)
    if not run.folder.is_dir():
        raise StoreError(f"there is no run directory {run.folder}.")
    return run


def _original(run: Store) -> State:
    """Return what `infer` made as a state, if nothing was added since."""
    from ..data.row_digest import RowDigest
    from ..results.states import ShardName

    loaded = run.load_tree()
    if loaded is None:
        raise StoreError(
            f"the run in {run.folder} is not finished. Repeat the call of infer to resume it."
        )
    attributes = loaded[1]
    num_rows = int(sum(attributes["shard_sizes"]))
    names = tuple(ShardName(ORIGINAL, shard) for shard in range(int(attributes["num_shards"])))
    return State(
        number=ORIGINAL,
        parent=None,
        action="run",
        name="",
        time=str(attributes["created_at"]),
        num_rows=num_rows,
        total_rows=num_rows,
        verdict=str(attributes["verdict"]),
        shards=names,
        batches=(),
        shapes=(),
        digest=RowDigest(),
    )
