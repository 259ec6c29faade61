import threading

import pytest

from vcmc._runtime import new_pool, num_cores, thread_map


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
