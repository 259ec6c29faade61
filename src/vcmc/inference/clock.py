"""Seconds that the stages of a run take, and times at which chains begin and end."""

import time


class Clock:
    """A stopwatch whose laps are stages; `seconds` has them by the name `seconds_<stage>`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage, which began when the one before it ended; repeated stages add up."""
        now = time.perf_counter()
        name = f"seconds_{stage}"
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._last, 4)
        self._last = now


class ChainClock:
    """The times at which a chain began and ended, comparable between machines.

    A clock may be set back during a run, or between a run and its resumption; durations are
    those of a monotonic clock, so that no chain ends before it began.

    Args:
        span: the span of the first part of the chain, if it was sampled before.
    """

    def __init__(self, span: tuple[float, float] | None = None):
        now = time.time()
        self.span = span or (now, now)
        self._offset = max(now, self.span[1]) - time.monotonic()

    def tick(self) -> None:
        """Extend the span until now."""
        self.span = self.span[0], self._offset + time.monotonic()
