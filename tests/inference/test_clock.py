"""Laps of the clock."""

import time

from vcmc.inference.clock import ChainClock, Clock


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


def test_a_chain_ends_after_it_began_even_if_the_clock_is_set_back(monkeypatch):
    now = iter([1000.0, 400.0])
    monkeypatch.setattr(time, "time", lambda: next(now))
    first = ChainClock()
    assert first.span == (1000.0, 1000.0)
    first.tick()
    assert 1000.0 <= first.span[1] < 1060.0
    resumed = ChainClock(first.span)  # by a process whose clock says 400
    assert resumed.span == first.span
    resumed.tick()
    assert resumed.span[0] == 1000.0
    assert resumed.span[1] >= first.span[1]
