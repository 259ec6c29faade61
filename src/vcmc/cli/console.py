"""Console output of the commands: plain lines, verdicts, errors, exit codes."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, cast

import click
from rich.console import Console

from ..errors import DoubtfulWarning, StoreWarning, WaitingWarning
from ..progress import LossyStream

if TYPE_CHECKING:
    from ..diagnostics.verdict import Diagnosis

# Exit codes. Click itself uses 1 for errors and 2 for wrong usage; a signal adds its number to 128.
EXIT_NOT_GOOD = 3
EXIT_SIGNAL = 128
FILE_WIDTH = 120  # columns, where the output is not a terminal
RESUME_HINT = "the same command resumes the run."


class Terminated(KeyboardInterrupt):
    """The command was asked to end by a signal: it ends as if by Ctrl-C, and deletes its copies."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


class Output(LossyStream):
    """Standard output; when its reader has gone, a command goes on and ends quietly."""

    def flush(self) -> None:
        super().flush()
        if self.is_broken and self._stream is not None:
            with suppress(OSError, ValueError):  # else Python complains when it flushes at its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def new_console() -> Console:
    """Return a console for standard output."""
    console = Console(file=cast(IO[str], Output(sys.stdout, waits=True)))
    if not console.is_terminal:
        console.width = FILE_WIDTH
    return console


def print_line(text: str) -> None:
    """Print a line unwrapped, so that paths in it can be copied."""
    new_console().print(text, highlight=False, markup=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print text, wrapped at the width of the console."""
    new_console().print(text, highlight=False, markup=False)


def conclude(
    diagnosis: "Diagnosis", message: str = "", groups: str = "", estimates: str = ""
) -> None:
    """Print a diagnosis and a message; exit with `EXIT_NOT_GOOD` unless the result is good.

    Args:
        diagnosis: the diagnosis.
        message: where the result is.
        groups: lines on the groups of the model, if it has any.
        estimates: a table of estimates, which comes first.
    """
    if estimates:
        print_line(f"{estimates}\n")
    print_text(str(diagnosis))
    if groups:
        print_text(groups)
    if message:
        print_line(message)
    if diagnosis.verdict not in ("good", "unknown"):
        raise SystemExit(EXIT_NOT_GOOD)


@contextmanager
def errors_in_one_line(after_interrupt: str = "") -> Iterator[None]:
    """Report errors in one line, without a traceback.

    So are vcmc's warnings; those about doubtful results are suppressed, because the verdict repeats
    them.

    Args:
        after_interrupt: a hint for the user who has pressed Ctrl-C.
    """
    try:
        with warnings.catch_warnings(), _warnings_in_one_line(), _termination_raises():
            warnings.simplefilter("ignore", DoubtfulWarning)
            yield
    except Terminated as signalled:
        print_line(f"terminated; {after_interrupt}".rstrip("; "))
        raise SystemExit(EXIT_SIGNAL + signalled.number) from None
    except KeyboardInterrupt:
        print_line(f"interrupted; {after_interrupt}".rstrip("; "))
        raise SystemExit(EXIT_SIGNAL + signal.SIGINT) from None
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print vcmc's own warnings without the line of code that they come from."""
    before = warnings.formatwarning

    def format_warning(message: Any, category: type[Warning], *location: Any) -> str:
        if issubclass(category, StoreWarning | WaitingWarning):
            return f"Warning: {' '.join(str(message).split())}\n"
        return before(message, category, *location)

    warnings.formatwarning = format_warning  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Let signals that ask the command to end raise `Terminated`, unless they are ignored."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    changed = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        changed = []  # only the main thread may handle signals
    for number in changed:
        signal.signal(number, _raise_terminated)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _raise_terminated(number: int, frame: Any) -> None:
    del frame
    raise Terminated(number)
