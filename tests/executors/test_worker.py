"""The receiving end of messages, called in this process."""

import pickle

import cloudpickle
import numpy as np
import pytest

import vcmc
from vcmc.data.cache import ShardCache, Task
from vcmc.executors import worker
from vcmc.executors.reply import ShardsMissing, unpack_reply
from vcmc.executors.worker import pack_subset, serve


@pytest.fixture(autouse=True)
def no_caches(monkeypatch):
    monkeypatch.setattr(worker, "_CACHES", type(worker._CACHES)())


@pytest.fixture
def shard_cache():
    return ShardCache(None, vcmc.split({"y": np.arange(12.0)}, 3))


def num_rows(shard_cache, task, advance):
    advance(7)
    return [shard_cache.shards[shard].num_rows for shard in task.shards]


def send(shard_cache, subset, work, *tasks, advance=lambda steps: None):
    packed_subset = None if subset is None else pack_subset(shard_cache, subset)
    message = pickle.dumps((shard_cache.key, packed_subset, cloudpickle.dumps(work), list(tasks)))
    return unpack_reply(serve(message, advance))


def test_shards_are_kept_for_later_messages(shard_cache):
    assert send(shard_cache, [0, 2], num_rows, Task((0, 2)))[0].get() == [4, 4]
    assert send(shard_cache, None, num_rows, Task((2,)), Task((0,)))[1].get() == [4]


def test_missing_shards_are_reported(shard_cache):
    assert isinstance(send(shard_cache, None, num_rows, Task((0,))), ShardsMissing)
    send(shard_cache, [0], num_rows, Task((0,)))
    assert isinstance(send(shard_cache, None, num_rows, Task((0, 1))), ShardsMissing)
    assert send(shard_cache, [1], num_rows, Task((0, 1)))[0].get() == [4, 4]


def test_only_the_last_caches_are_kept(shard_cache):
    caches = [shard_cache.with_model(None) for _ in range(worker.MAX_CACHES + 1)]
    for other in caches:
        send(other, [0], num_rows, Task((0,)))
    assert isinstance(send(caches[0], None, num_rows, Task((0,))), ShardsMissing)
    assert send(caches[-1], None, num_rows, Task((0,)))[0].get() == [4]


def test_progress_is_reported(shard_cache):
    steps = []
    send(shard_cache, [0], num_rows, Task((0,)), Task((0,)), advance=steps.append)
    assert steps == [7, 7]


def test_the_error_of_a_task_has_its_traceback_as_a_note(shard_cache):
    def fail(shard_cache, task, advance):
        raise ValueError("bad shard")

    first, second = send(shard_cache, [0, 1], fail, Task((0,)), Task((1,)))
    assert str(first.error) == "bad shard"
    assert "raised in another process, on shards (0,)" in first.error.__notes__[0]
    assert "in fail" in first.error.__notes__[0]
    assert "on shards (1,)" in second.error.__notes__[0]


def test_a_result_that_cannot_be_pickled_is_an_error(shard_cache):
    def generator(shard_cache, task, advance):
        return (number for number in range(3))

    (outcome,) = send(shard_cache, [0], generator, Task((0,)))
    assert "its result cannot be pickled" in str(outcome.error)


def test_an_unreadable_message_is_an_error():
    (outcome,) = unpack_reply(serve(b"no pickle"))
    assert "while it was unpickled" in outcome.error.__notes__[0]


def test_work_that_exits_is_an_error_and_the_process_stays(shard_cache):
    def leave(shard_cache, task, advance):
        raise SystemExit(3)

    (outcome,) = send(shard_cache, [0], leave, Task((0,)))
    assert str(outcome.error) == "SystemExit: 3"
