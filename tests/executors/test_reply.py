"""Replies arrive whatever they hold."""

import pickle

import pytest

from vcmc.executors.base import Outcome
from vcmc.executors.reply import (
    PackedError,
    ShardsMissing,
    pack_error,
    pack_reply,
    unpack_error,
    unpack_reply,
)


class TwoArguments(Exception):
    """It pickles, but cannot be unpickled: `args` has one argument."""

    def __init__(self, shard, reason):
        super().__init__(f"{reason} in {shard}")


class HoldsLambda(Exception):
    """It cannot be unpickled, as a function inside raises."""

    def __reduce__(self):
        return _fail, ()


class NoMessage(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def _fail():
    raise OSError("only where it was raised")


def raised(error):
    try:
        raise error
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TwoArguments(3, "bad"), "bad in 3"),
        (HoldsLambda("why"), "HoldsLambda: why"),
        (NoMessage(), r"NoMessage: its message cannot be read \(RuntimeError\)"),
        (SystemExit(2), "SystemExit: 2"),
    ],
)
def test_the_reason_of_an_error_arrives_whatever_its_class(error, text):
    reply = pack_reply([1, pack_error(error, "on shards (0,)")])
    first, second = unpack_reply(reply)
    assert first == Outcome(1)
    # Dask and Ray teach pickle more classes, if they are imported
    with pytest.raises((RuntimeError, TwoArguments), match=text):
        second.get()


def test_an_error_keeps_its_class_and_its_traceback():
    error = unpack_error(pack_error(raised(ZeroDivisionError("by zero")), "on shards (0,)"))
    assert type(error) is ZeroDivisionError
    assert "raised in another process, on shards (0,)" in error.__notes__[0]
    assert "in raised" in error.__notes__[0]


def test_a_fallback_has_the_traceback_too():
    error = unpack_error(pack_error(raised(HoldsLambda("bad")), "on shards (0,)"))
    assert type(error) is RuntimeError
    assert "in raised" in error.__notes__[0]


def test_a_result_that_cannot_be_pickled_does_not_hide_the_others():
    first, second, third = unpack_reply(pack_reply([1, (number for number in ()), 3]))
    assert (first.get(), third.get()) == (1, 3)
    assert "its result cannot be pickled" in str(second.error)


def test_a_reply_that_cannot_be_unpickled_is_an_error():
    (outcome,) = unpack_reply(pickle.dumps([HoldsLambda()]))
    assert "a reply cannot be unpickled here (OSError: only where" in str(outcome.error)


def test_missing_shards_are_no_outcome():
    assert isinstance(unpack_reply(pickle.dumps(ShardsMissing())), ShardsMissing)


def test_an_error_without_a_pickle_is_text():
    assert str(unpack_error(PackedError("Odd", "why", "note", b""))) == "Odd: why"
