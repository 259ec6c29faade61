"""Show the progress of a run: bars on a terminal and in notebooks, lines on request, else nothing.

After Ctrl-C or an error, the threads of the run stop at their next step. Text that cannot be
written is dropped: a closed or full standard error does not end a run.
"""

import contextlib
import importlib.util
import sys
import threading
import time
from types import TracebackType
from typing import IO, Any, Literal, cast

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

from .errors import Interrupted, has_room

ProgressMode = bool | Literal["lines"]
"""Whether to show progress: bars on a terminal only, or, with "lines", plain lines elsewhere."""

LINE_INTERVAL = 10.0  # seconds between two lines of a stage


class LossyStream:
    """A text stream that drops what cannot be written.

    Args:
        stream: the stream, e.g. standard error; None if it is closed.
        waits: whether to wait for the reader of a full pipe; otherwise the text is dropped.
    """

    def __init__(self, stream: Any, *, waits: bool):
        self._stream = getattr(stream, "rich_proxied_file", stream)  # while bars are shown
        self._waits = waits
        self.is_broken = stream is None

    def write(self, text: str) -> int:
        """Write text, with a question mark for characters that the stream does not have."""
        if not self.is_broken and (self._waits or has_room(self._stream)):
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.encode(encoding, "replace").decode(encoding))
            except (OSError, ValueError):  # of a closed stream
                self.is_broken = True
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        if not self.is_broken and (self._waits or has_room(self._stream)):
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self.is_broken = True

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return self._stream.isatty()
        return False

    def fileno(self) -> int:
        """Return the number of the file, from which the size of a terminal is found."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"


class CountColumn(ProgressColumn):
    """Steps done, or, of a stage that samples, finished shards and draws per second."""

    def render(self, task: Task) -> Text:
        if counts := shard_counts(task):
            return Text(f"{task.percentage:.0f} %, {counts}")
        return Text(f"{task.completed:.0f}" + ("" if task.total is None else f"/{task.total:.0f}"))


def shard_counts(task: Task) -> str:
    """Return finished shards and draws per second as text, empty if the stage does not sample."""
    if task.fields["num_shards"] is None:
        return ""
    speed = task.finished_speed or task.speed
    rate = f", {speed:,.0f} draws/s" if speed else ""
    return f"{task.fields['num_finished']}/{task.fields['num_shards']} shards{rate}"


class Stage:
    """One stage of a run, shown as a bar."""

    def __init__(self, display: "ProgressDisplay", task: TaskID):
        self._display, self._task = display, task

    def advance(self, steps: int = 1) -> None:
        """Report steps done. Raise `Interrupted` if the run was stopped."""
        if self._display.stopped.is_set():
            raise Interrupted
        self._display.progress.advance(self._task, steps)
        self._display.write_line(self._task)

    def stop(self) -> None:
        """Stop the threads of the run at their next step."""
        self._display.stopped.set()

    def count(self, num_finished: int) -> None:
        """Report the number of finished shards."""
        self._display.progress.update(self._task, num_finished=num_finished)

    def finish(self) -> None:
        """End a stage whose number of steps was not known."""
        num_steps = max(1, int(self._display.progress.tasks[self._task].completed))
        self._display.progress.update(self._task, total=num_steps, completed=num_steps)
        self._display.write_line(self._task)


class ProgressDisplay:
    """The bars or lines of one run, used as a context manager."""

    def __init__(self, mode: ProgressMode = True):
        if mode not in (True, False, "lines"):
            raise ValueError(f'progress must be True, False or "lines"; got {mode!r}.')
        self._stream = LossyStream(sys.stderr, waits=False)
        console = Console(file=cast(IO[str], self._stream))
        self.stopped = threading.Event()
        self._line_times: dict[TaskID, float] = {}
        self._lock = threading.Lock()
        in_notebook = console.is_jupyter
        draws_bars = _has_widgets() if in_notebook else console.is_terminal
        # a notebook without widgets gets lines: rich would show nothing there, with a warning
        self._writes_lines = not draws_bars and (mode == "lines" or (bool(mode) and in_notebook))
        self.progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),
            CountColumn(table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not (mode and draws_bars),
        )

    def stage(self, description: str, total: int | None, num_shards: int | None = None) -> Stage:
        """Start a stage of `total` steps (None: unknown); give `num_shards` if it samples."""
        task = self.progress.add_task(
            description, total=total, num_shards=num_shards, num_finished=0
        )
        self._line_times[task] = time.monotonic()
        self._write(f"{description} …")
        return Stage(self, task)

    def write_line(self, number: TaskID) -> None:
        """Write a line if the stage has ended, or after `LINE_INTERVAL` seconds."""
        if not self._writes_lines:
            return
        task = self.progress.tasks[number]
        with self._lock:
            if number not in self._line_times or not (
                task.finished or time.monotonic() - self._line_times[number] > LINE_INTERVAL
            ):
                return
            self._line_times[number] = time.monotonic()
            if task.finished:
                del self._line_times[number]
        self._write(_line(task))

    def _write(self, text: str) -> None:
        if self._writes_lines:
            self._stream.write(text + "\n")
            self._stream.flush()

    def __enter__(self) -> "ProgressDisplay":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.stopped.set()
        self.progress.stop()


def _has_widgets() -> bool:
    """Return whether a notebook can show bars that change."""
    return importlib.util.find_spec("ipywidgets") is not None


def _line(task: Task) -> str:
    """Return the progress of a stage as a line of text."""
    counts = shard_counts(task)
    if task.finished:
        rate = f" ({task.completed / task.elapsed:,.0f} draws/s)" if counts and task.elapsed else ""
        return f"{task.description}: done in {task.elapsed or 0:.1f} s{rate}"
    share = f"{task.percentage:.0f} %" if task.total else f"{task.completed:.0f} steps"
    left = f", {task.time_remaining:.0f} s left" if task.time_remaining is not None else ""
    return f"{task.description}: {share}{', ' + counts if counts else ''}{left}"
