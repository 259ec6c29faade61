"""Show how far a run is: bars on a terminal, nothing elsewhere. Ctrl-C stops at the next step."""

import threading
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Interrupted(Exception):
    """Raised in threads whose run was given up."""


class Stage:
    """One bar: a stage of the run with a known number of steps."""

    def __init__(self, bars: "Bars", task: TaskID):
        self._bars, self._task = bars, task

    def advance(self, steps: int = 1) -> None:
        """Move on. Raises `Interrupted` once the run was given up."""
        if self._bars.given_up.is_set():
            raise Interrupted
        self._bars.progress.advance(self._task, steps)

    def finish(self) -> None:
        """End a stage whose number of steps was not known."""
        done = max(1, int(self._bars.progress.tasks[self._task].completed))
        self._bars.progress.update(self._task, total=done, completed=done)


class Bars:
    """The bars of one run, to be used in a `with` statement."""

    def __init__(self, shown: bool = True):
        console = Console(stderr=True)
        self.given_up = threading.Event()
        self.progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
        )

    def stage(self, description: str, total: int | None) -> Stage:
        """Begin a stage of so many steps, or of as many as it takes."""
        return Stage(self, self.progress.add_task(description, total=total))

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        if kind is not None:
            self.given_up.set()
        self.progress.stop()
