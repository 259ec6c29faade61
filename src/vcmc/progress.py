"""Show how far a run is: bars on a terminal, plain lines where they are asked for, else nothing. Ctrl-C stops at the next step."""

import sys
import threading
import time
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from .errors import Interrupted

ProgressMode = bool | Literal["lines"]
"""Whether progress is shown: bars on a terminal only, or, with "lines", plain lines elsewhere."""

EVERY = 10.0  # seconds between two lines of a stage


class Counts(ProgressColumn):
    """How much is done: of a stage that samples, shards that are finished, and draws per second."""

    def render(self, task: Task) -> Text:
        if counts := counted(task):
            return Text(f"{task.percentage:.0f} %, {counts}")
        return Text(f"{task.completed:.0f}" + ("" if task.total is None else f"/{task.total:.0f}"))


def counted(task: Task) -> str:
    """Shards that are finished, and draws per second, in words."""
    if task.fields["num_shards"] is None:
        return ""
    pace = task.finished_speed or task.speed
    rate = f", {pace:,.0f} draws/s" if pace else ""
    return f"{task.fields['num_finished']}/{task.fields['num_shards']} shards{rate}"


class Stage:
    """One bar: a stage of the run with a known number of steps."""

    def __init__(self, bars: "ProgressDisplay", task: TaskID):
        self._bars, self._task = bars, task

    def advance(self, steps: int = 1) -> None:
        """Move on. Raises `Interrupted` once the run was given up."""
        if self._bars.given_up.is_set():
            raise Interrupted
        self._bars.progress.advance(self._task, steps)
        self._bars.tell(self._task)

    def count(self, num_finished: int) -> None:
        """Say how many shards are finished."""
        self._bars.progress.update(self._task, num_finished=num_finished)

    def finish(self) -> None:
        """End a stage whose number of steps was not known."""
        done = max(1, int(self._bars.progress.tasks[self._task].completed))
        self._bars.progress.update(self._task, total=done, completed=done)
        self._bars.tell(self._task)


class ProgressDisplay:
    """The bars, or lines, of one run, to be used in a `with` statement."""

    def __init__(self, shown: ProgressMode = True):
        if shown not in (True, False, "lines"):
            raise ValueError(f'progress must be True, False or "lines"; got {shown!r}.')
        console = Console(stderr=True)
        self.given_up = threading.Event()
        self._told: dict[TaskID, float] = {}
        self._lock = threading.Lock()
        self._lines = shown == "lines" and not console.is_terminal
        self.progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            Counts(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
        )

    def stage(self, description: str, total: int | None, num_shards: int | None = None) -> Stage:
        """Begin a stage of so many steps, or of as many as it takes; one that samples has shards."""
        task = self.progress.add_task(
            description, total=total, num_shards=num_shards, num_finished=0
        )
        self._told[task] = time.monotonic()
        self._write(f"{description} …")
        return Stage(self, task)

    def tell(self, number: TaskID) -> None:
        """Write a line if the stage has ended, or if none was written for a while."""
        if not self._lines:
            return
        task = self.progress.tasks[number]
        with self._lock:
            if number not in self._told or not (
                task.finished or time.monotonic() - self._told[number] > EVERY
            ):
                return
            self._told[number] = time.monotonic()
            if task.finished:
                del self._told[number]
        self._write(_line(task))

    def _write(self, text: str) -> None:
        if self._lines:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def __enter__(self) -> "ProgressDisplay":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.given_up.set()
        self.progress.stop()


def _line(task: Task) -> str:
    """How far a stage is, in words."""
    counts = counted(task)
    if task.finished:
        pace = f" ({task.completed / task.elapsed:,.0f} draws/s)" if counts and task.elapsed else ""
        return f"{task.description}: done in {task.elapsed or 0:.1f} s{pace}"
    share = f"{task.percentage:.0f} %" if task.total else f"{task.completed:.0f} steps"
    left = f", {task.time_remaining:.0f} s left" if task.time_remaining is not None else ""
    return f"{task.description}: {share}{', ' + counts if counts else ''}{left}"
