"""Replies of processes, packed so that every outcome arrives, whatever the class of an error.

An exception may pickle and yet not unpickle: its `__init__` takes other arguments, or its class
exists only where it was raised. So an error travels as text, with its pickle beside it.
"""

import pickle
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import cloudpickle

from .base import Outcome


class ShardsMissing(Exception):
    """The process that a message was sent to lacks some or all of its shards."""


class PackedError(NamedTuple):
    """An error as text, and its pickle, which may be unreadable elsewhere (empty: there is none).

    `note` has its traceback, which would be lost otherwise.
    """

    name: str
    message: str
    note: str
    pickled: bytes


def pack_error(error: BaseException, context: str) -> PackedError:
    """Pack an error that was raised in this process; `context` says at what."""
    try:
        message = str(error)
    except Exception as failure:
        message = f"its message cannot be read ({type(failure).__name__})"
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        pickled = b""
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:
        trace = f"{type(error).__name__}: {message}\n"
    note = f"(raised in another process, {context})\n{trace}"
    return PackedError(type(error).__name__, message, note, pickled)


def unpack_error(packed: PackedError) -> Exception:
    """Return the error with its traceback as a note; a RuntimeError if its class is unknown here.

    >>> unpack_error(PackedError("OddError", "bad row", "(raised in another process)", b""))
    RuntimeError('OddError: bad row')
    """
    try:
        error = pickle.loads(packed.pickled)
        is_same = isinstance(error, Exception) and str(error) == packed.message
    except Exception:
        is_same = False
    if not is_same:
        error = RuntimeError(f"{packed.name}: {packed.message}")
    error.add_note(packed.note)
    return error


def pack_reply(results: Sequence[object | PackedError]) -> bytes:
    """Pack the results or errors of a message's tasks."""
    try:
        return cloudpickle.dumps(list(results))
    except Exception:
        return cloudpickle.dumps([_packable(result) for result in results])


def unpack_reply(reply: bytes) -> list[Outcome] | ShardsMissing:
    """Return the outcomes of a message's tasks."""
    try:
        results = pickle.loads(reply)
    except Exception as failure:
        reason = f"a reply cannot be unpickled here ({type(failure).__name__}: {failure})"
        return [Outcome(error=RuntimeError(reason))]
    if isinstance(results, ShardsMissing):
        return results
    return [
        Outcome(error=unpack_error(result)) if isinstance(result, PackedError) else Outcome(result)
        for result in results
    ]


def _packable(result: object) -> object:
    """Return a result, or, if it cannot be pickled, an error that says so."""
    try:
        cloudpickle.dumps(result)
    except Exception as failure:
        reason = f"its result cannot be pickled ({type(failure).__name__}: {failure})"
        return pack_error(RuntimeError(reason), "when its result was sent")
    return result
