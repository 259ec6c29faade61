"""Console output of the commands: plain lines, verdicts, errors, exit codes."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ..errors import DoubtfulWarning

if TYPE_CHECKING:
    from ..diagnostics.verdict import Diagnosis

# Exit codes. Click itself uses 1 for errors and 2 for wrong usage; 130 is 128 + SIGINT.
EXIT_NOT_GOOD = 3
EXIT_INTERRUPTED = 130
FILE_WIDTH = 120  # columns, where the output is not a terminal
RESUME_HINT = "the same command resumes the run."


def new_console() -> Console:
    """Return a console for standard output."""
    console = Console()
    if not console.is_terminal:
        console.width = FILE_WIDTH
    return console


def print_line(text: str) -> None:
    """Print a line unwrapped, so that paths in it can be copied."""
    new_console().print(text, highlight=False, markup=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print text, wrapped at the width of the console."""
    new_console().print(text, highlight=False, markup=False)


def conclude(diagnosis: "Diagnosis", message: str = "") -> None:
    """Print a diagnosis and a message; exit with `EXIT_NOT_GOOD` unless the result is good."""
    print_text(str(diagnosis))
    if message:
        print_line(message)
    if diagnosis.verdict not in ("good", "unknown"):
        raise SystemExit(EXIT_NOT_GOOD)


@contextmanager
def errors_in_one_line(after_interrupt: str = "") -> Iterator[None]:
    """Report errors in one line, without a traceback.

    Warnings about doubtful results are suppressed, because the verdict repeats them.

    Args:
        after_interrupt: a hint for the user who has pressed Ctrl-C.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulWarning)
            yield
    except KeyboardInterrupt:
        print_line(f"interrupted; {after_interrupt}".rstrip("; "))
        raise SystemExit(EXIT_INTERRUPTED) from None
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        raise click.ClickException(" ".join(str(error).split())) from error
