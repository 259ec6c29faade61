"""All executors satisfy the laws of `vcmc.testing`, and survive the loss of processes."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc import executors
from vcmc.data.cache import ShardCache, Task
from vcmc.errors import SlotLost, WaitingWarning
from vcmc.target import Target
from vcmc.testing import check_executor

TASKS = [Task((shard,)) for shard in range(5)]
LOCALS = {
    "Local": executors.Local(),
    "Local, one thread": executors.Local(num_threads=1),
    "Local, three threads": executors.Local(num_threads=3),
}


@contextmanager
def dask(num_workers):
    distributed = pytest.importorskip("distributed")
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "local_directory": None}
    with (
        distributed.LocalCluster(n_workers=num_workers, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client if num_workers == 1 else executors.Dask(client)


@contextmanager
def ray():
    module = pytest.importorskip("ray")
    module.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    yield executors.Ray(num_slots=2)
    module.shutdown()


@contextmanager
def pool():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as found:
        yield found


REMOTES = {
    "Processes(1)": lambda: executors.Processes(1),
    "Processes(2)": lambda: executors.Processes(2),
    "Futures": pool,
    "Dask, one worker": lambda: dask(1),
    "Dask, three workers": lambda: dask(3),
    "Ray": ray,
}


def _shard_cache(conjugate):
    return ShardCache(conjugate.model, vcmc.split(conjugate.rows, 5))


def test_every_executor_is_here(members):
    classes = members(executors, executors.AbstractExecutor)
    assert classes == {
        executors.Local,
        executors.Processes,
        executors.Futures,
        executors.Dask,
        executors.Ray,
    }


@pytest.mark.parametrize("executor", LOCALS.values(), ids=LOCALS.keys())
def test_threads_keep_the_laws(executor):
    check_executor(executor)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "Processes(2)" else pytest.mark.slow)
        for name in REMOTES
    ],
)
def test_processes_keep_the_laws(name):
    with REMOTES[name]() as executor:
        check_executor(executor, kills=name != "Processes(2)")  # kills take long


def test_both_cores_are_used(conjugate):
    together = threading.Barrier(2, timeout=10)
    tasks = TASKS[:2]
    work = lambda shard_cache, task, advance: together.wait()  # noqa: E731
    assert len(list(executors.Local(num_threads=2).map(work, tasks, _shard_cache(conjugate)))) == 2


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="num_threads must be 1 or more; got 0"):
        executors.Local(num_threads=0)
    with pytest.raises(
        ValueError, match=r"num_processes must be an integer of at least 1, .* got 0"
    ):
        executors.Processes(0)
    with ThreadPoolExecutor(1) as threads, pytest.raises(TypeError, match="for threads use"):
        executors.executor_of(threads)
    with pytest.raises(
        TypeError, match=r"executor must be an Executor instance, e\.g\. .* got 'dask'"
    ):
        executors.executor_of("dask")


@pytest.mark.slow
def test_work_that_kills_its_process_is_tried_three_times(conjugate):
    """Then its error says so, and the executor works on. `test_kills.py` has other losses."""
    partition = vcmc.split(conjugate.rows, 5)
    points = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    expected = Target(conjugate.model, partition, executors.Local())(points)

    def kill(shard_cache, task, advance):
        os.kill(os.getpid(), signal.SIGKILL)

    with executors.Processes(2) as executor:
        target = Target(conjugate.model, partition, executor)
        (outcome,) = executor.outcomes(kill, TASKS[:1], target.shard_cache)
        assert isinstance(outcome.error, SlotLost)
        assert "shard 0 was lost 3 times" in str(outcome.error)
        for part, exact in zip(target(points), expected, strict=True):
            np.testing.assert_array_equal(part, exact)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.errors.WaitingWarning")  # Ray may count cores late
def test_executors_on_one_ray_cluster_share_its_cores(conjugate, monkeypatch):
    """The first takes all cores; idle, it gives them to a second one; busy cores are awaited."""
    monkeypatch.setattr(executors.ray, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(executors.ray, "CORE_TIMEOUT", 10.0)
    work = lambda shard_cache, task, advance: task.shards[0]  # noqa: E731
    shard_cache = _shard_cache(conjugate)
    with ray() as first:
        second = executors.Ray()
        for executor in (first, second):
            assert list(executor.map(work, TASKS, shard_cache)) == [0, 1, 2, 3, 4]
        assert (first.num_open, second.num_open) == (0, 2)
        second.close()
        with executors.Ray(num_slots=1) as busy:
            list(busy.map(work, TASKS, shard_cache))
            busy._num_maps += 1  # as if it worked
            with pytest.warns(WaitingWarning, match="continuing with these"):
                assert list(first.map(work, TASKS, shard_cache)) == [0, 1, 2, 3, 4]
            assert first.num_open == 1
        first.close()
