from vcmc._runtime import thread_map


def test_maps_may_be_nested():
    """More maps wait in the pool than it has threads: those inside get threads of their own."""
    inside = lambda item: sum(thread_map(lambda inner: inner * item, [1, 2, 3], 2))  # noqa: E731
    assert list(thread_map(inside, [1, 2, 3, 4], 2)) == [6, 12, 18, 24]
