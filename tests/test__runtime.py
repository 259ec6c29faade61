import threading
from functools import partial

import equinox as eqx
import jax
import pytest

from vcmc import _runtime
from vcmc._runtime import limit_programs, new_pool, num_cores, thread_map, wait_for_all


def test_maps_may_be_nested():
    """More maps wait in the pool than it has threads: nested ones get threads of their own."""
    inner_map = lambda item: sum(thread_map(lambda inner: inner * item, [1, 2, 3], 2))  # noqa: E731
    assert list(thread_map(inner_map, [1, 2, 3, 4], 2)) == [6, 12, 18, 24]


def test_maps_outside_of_pools_share_threads():
    get_thread = lambda item: threading.current_thread()  # noqa: E731
    (first,), (second,) = (list(thread_map(get_thread, [0], 1)) for _ in range(2))
    assert first is second


def test_a_map_in_a_thread_of_a_new_pool_does_not_use_the_shared_pool():
    get_thread = lambda item: threading.current_thread()  # noqa: E731
    shared = list(thread_map(get_thread, [0], 1))
    with new_pool(1, "a name that means nothing") as pool:
        nested = pool.submit(lambda: list(thread_map(get_thread, [0], 1))).result(timeout=60)
    assert nested[0] is not shared[0]


def test_the_error_of_an_item_is_raised():
    with pytest.raises(ZeroDivisionError):
        list(thread_map(lambda item: 1 / item, [1, 0, 2], 2))


def test_there_is_a_core():
    assert num_cores() >= 1


def test_programs_are_dropped_when_there_were_many_models(monkeypatch):
    compiled = []

    @partial(jax.jit, static_argnums=0)
    def program(model, number):
        compiled.append(model)
        return number + 1

    monkeypatch.setattr(_runtime, "_compiled_per_model", [program, eqx.filter_jit(lambda: None)])
    monkeypatch.setattr(_runtime, "_models", {})
    monkeypatch.setattr(_runtime, "MAX_MODELS", 3)
    for model in ("a", "b", "a", "c", "b", "a"):
        limit_programs(model)
        program(model, 1.0)
    assert compiled == ["a", "b", "c"]
    limit_programs("d")
    program("a", 1.0)
    assert compiled == ["a", "b", "c", "a"]


def test_functions_of_models_are_registered():
    names = {function.__module__ for function in _runtime._compiled_per_model}
    assert {"vcmc.density", "vcmc.samplers.nuts", "vcmc.samplers.hmc"} <= names


def test_waiting_for_threads_can_be_interrupted(monkeypatch):
    monkeypatch.setattr(_runtime, "POLL_SECONDS", 0.01)
    done = threading.Event()

    def stop():
        done.set()
        raise InterruptedError

    with new_pool(1) as pool, pytest.raises(InterruptedError):
        wait_for_all([pool.submit(done.wait, 60)], stop)


def test_the_first_exception_of_a_thread_is_raised_at_once():
    done = threading.Event()
    with new_pool(2) as pool:
        futures = [pool.submit(done.wait, 60), pool.submit(lambda: 1 / 0)]
        with pytest.raises(ZeroDivisionError):
            wait_for_all(futures, lambda: None)
        assert not futures[0].done()
        done.set()
