"""The receiving end of `slots.py`: run the tasks of a message in the process it was sent to.

A process keeps the shards that it was sent. A message names the key of its shard cache and the
shards of its tasks; if the process lacks any of them, it replies `ShardsMissing`, and is sent them.
"""

import pickle
import traceback
from collections import OrderedDict
from collections.abc import Callable

import cloudpickle
import jax

from ..data.cache import ShardCache, Task, Work
from .base import Outcome, no_progress, run_task

MAX_CACHES = 2  # per process: that of the run, and that of a run nested in it
# Options of JAX that workers take over: where compiled programs are cached, if they are.
SHARED_OPTIONS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")

_CACHES: OrderedDict[str, ShardCache] = OrderedDict()  # of this process, the last used at the end


class ShardsMissing(Exception):
    """The process that a message was sent to lacks some or all of its shards."""


def serve(message: bytes, advance: Callable[[int], None] = no_progress) -> bytes:
    """Run the tasks of a message, and return their pickled outcomes."""
    try:
        key, subset, work, tasks = pickle.loads(message)
        shard_cache = _shard_cache(key, subset)
        if shard_cache is None or not all(
            shard_cache.partition.has(shard) for task in tasks for shard in task.shards
        ):
            return cloudpickle.dumps(ShardsMissing())
        function: Work = pickle.loads(work)
    except Exception as error:
        return _packed([Outcome(error=_with_note(error, "while it was unpickled"))])
    return _packed([_run(function, shard_cache, task, advance) for task in tasks])


class Server:
    """An actor of a cluster that serves messages."""

    def serve(self, message: bytes) -> bytes:
        """Run the tasks of a message, and return their pickled outcomes."""
        return serve(message)


def pack_subset(shard_cache: ShardCache, shards: list[int]) -> bytes:
    """Return the part of a shard cache that must accompany a message on these shards."""
    options = {name: getattr(jax.config, name) for name in SHARED_OPTIONS}
    return cloudpickle.dumps((options, shard_cache.subset(shards)))


def _shard_cache(key: str, packed_subset: bytes | None) -> ShardCache | None:
    """Return the shard cache of a key, if this process has it, with the shards just sent."""
    if packed_subset is not None:
        subset: ShardCache
        options, subset = pickle.loads(packed_subset)
        for name, value in options.items():
            jax.config.update(name, value)
        if key in _CACHES:
            _CACHES[key].merge(subset)
        else:
            _CACHES[key] = subset
    if key in _CACHES:
        _CACHES.move_to_end(key)
    while len(_CACHES) > MAX_CACHES:
        _CACHES.popitem(last=False)
    return _CACHES.get(key)


def _run(
    work: Work, shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
) -> Outcome:
    outcome = run_task(work, shard_cache, task, advance)
    if outcome.error is None:
        return outcome
    return Outcome(error=_with_note(outcome.error, f"on shards {task.shards}"))


def _with_note(error: Exception, context: str) -> Exception:
    """Add a note with the traceback, which is lost when an error is pickled."""
    error.add_note(
        f"(raised in another process, {context})\n" + "".join(traceback.format_exception(error))
    )
    return error


def _packed(outcomes: list[Outcome]) -> bytes:
    try:
        return cloudpickle.dumps(outcomes)
    except Exception as failure:  # an error that cannot be pickled, most likely
        errors = [outcome.error for outcome in outcomes if outcome.error]
        if errors:
            reason = f"{type(errors[0]).__name__}: {errors[0]}"
        else:
            reason = f"its result cannot be pickled ({type(failure).__name__}: {failure})"
        return cloudpickle.dumps([Outcome(error=RuntimeError(reason)) for _ in outcomes])
