"""Laps of the clock."""

import time

from vcmc.inference.clock import Clock


def test_laps_are_stages_and_add_up():
    begin = time.perf_counter()
    clock = Clock()
    time.sleep(0.02)
    clock.lap("first")
    clock.lap("second")
    total = time.perf_counter() - begin
    assert list(clock.seconds) == ["seconds_first", "seconds_second"]
    assert clock.seconds["seconds_first"] >= 0.0199
    assert clock.seconds["seconds_second"] < clock.seconds["seconds_first"]
    assert sum(clock.seconds.values()) <= total + 1e-3
