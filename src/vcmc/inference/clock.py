"""Seconds that each stage of a run takes."""

import time


class Clock:
    """A stopwatch whose laps are stages; `seconds` has them by the name `seconds_<stage>`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage, which began when the one before it ended."""
        now = time.perf_counter()
        self.seconds[f"seconds_{stage}"] = round(now - self._last, 4)
        self._last = now
