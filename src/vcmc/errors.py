"""All exceptions and warnings of vcmc."""

import select
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xarray import DataTree


class ModelError(ValueError):
    """The model cannot be split into shards."""


class StoreError(RuntimeError):
    """A run directory cannot be used as it is, or can no longer be written to.

    What it holds is kept. `tree` has the draws made so far, if the run had begun.
    """

    def __init__(self, message: str, tree: "DataTree | None" = None):
        super().__init__(message)
        self.tree = tree


class StoreWarning(UserWarning):
    """A part of a run directory could not be used, and is made again."""


class SlotLost(RuntimeError):
    """The process that a message was sent to has died, or does not answer."""


class ExecutorLost(SlotLost):
    """No process of an executor answers, so that work cannot be sent elsewhere."""


class TaskError(RuntimeError):
    """Work on some shards failed. `__cause__` is the error that it raised."""


class WaitingWarning(UserWarning):
    """An executor waits for workers or cores of a cluster, for a limited time."""


class Interrupted(Exception):
    """Stop the threads of a run that was interrupted."""


class DoubtfulWarning(UserWarning):
    """A result may be wrong. Its `warnings` attribute has the same text."""


class ShardError(RuntimeError):
    """Some shards could not be sampled. `tree` has the draws of the others; None without any."""

    def __init__(self, message: str, tree: "DataTree | None"):
        super().__init__(message)
        self.tree = tree


class CombineError(ShardError):
    """All shards were sampled, but could not be combined. `tree` holds their draws."""


class AssessmentError(ShardError):
    """The draws were combined, but refining or diagnosing them failed. `tree` holds all draws."""


PACKAGE_FOLDER = str(Path(__file__).parent)


def has_room(stream: Any) -> bool:
    """Return whether a line can be written to a stream without waiting for its reader."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return bool(poll.poll(0))
    except (OSError, ValueError, AttributeError):  # not a file
        return True


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that called vcmc.

    A warning that would wait for the reader of a full pipe is not written.
    """
    stream = sys.stderr
    if not has_room(stream):
        sys.stderr = None
    try:
        if sys.version_info >= (3, 12):
            warnings.warn(message, category, skip_file_prefixes=(PACKAGE_FOLDER,))
        else:
            warnings.warn(message, category, stacklevel=_user_stacklevel())
    except ValueError:  # Python ignores all failures to write a warning but this one
        if not getattr(sys.stderr, "closed", False):
            raise
    finally:
        if sys.stderr is None:
            sys.stderr = stream


def warn_doubtful(notes: Iterable[str]) -> None:
    """Issue a `DoubtfulWarning` for every note."""
    for note in notes:
        warn_user(note, DoubtfulWarning)


def _user_stacklevel() -> int:
    """Return the stack level, as `warn_user` sees it, of the first frame outside vcmc."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE_FOLDER):
        level, frame = level + 1, frame.f_back
    return level


def describe(error: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
