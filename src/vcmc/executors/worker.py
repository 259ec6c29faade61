"""The receiving end of `slots.py`: run the tasks of a message in the process it was sent to.

A process keeps the shards that it was sent. A message names the key of its shard cache and the
shards of its tasks; if the process lacks any of them, it replies `ShardsMissing`, and is sent them.
"""

import pickle
from collections import OrderedDict
from collections.abc import Callable

import cloudpickle
import jax

from .._runtime import limit_programs
from ..data.cache import ShardCache, Task, Work
from .base import no_progress
from .reply import PackedError, ShardsMissing, pack_error, pack_reply

MAX_CACHES = 2  # per process: that of the run, and that of a run nested in it
# Options of JAX that workers take over: where compiled programs are cached, if they are.
SHARED_OPTIONS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")

_CACHES: OrderedDict[str, ShardCache] = OrderedDict()  # of this process, the last used at the end


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
        return pack_reply([pack_error(error, "while it was unpickled")])
    return pack_reply([_run(function, shard_cache, task, advance) for task in tasks])


class Server:
    """An actor of a cluster that serves messages."""

    def serve(self, message: bytes) -> bytes:
        """Run the tasks of a message, and return their pickled outcomes."""
        return serve(message)

    def is_alive(self) -> bool:
        """Give a sign of life."""
        return True


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
            limit_programs(subset.model)
            _CACHES[key] = subset
    if key in _CACHES:
        _CACHES.move_to_end(key)
    while len(_CACHES) > MAX_CACHES:
        _CACHES.popitem(last=False)
    return _CACHES.get(key)


def _run(
    work: Work, shard_cache: ShardCache, task: Task, advance: Callable[[int], None]
) -> object | PackedError:
    """Run a task, and return its result or its error."""
    try:
        return work(shard_cache, task, advance)
    # a model that calls sys.exit() must not end the process, which would be tried again
    except (Exception, SystemExit) as error:
        return pack_error(error, f"on shards {task.shards}")
