from vcmc.cores import on_threads


def test_maps_may_be_nested():
    """More maps wait in the pool than it has threads: those inside get threads of their own."""
    inside = lambda item: sum(on_threads(lambda inner: inner * item, [1, 2, 3], 2))  # noqa: E731
    assert list(on_threads(inside, [1, 2, 3, 4], 2)) == [6, 12, 18, 24]
