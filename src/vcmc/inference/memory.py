"""Peak memory of a piece of work."""

import os
import threading

import numpy as np

INTERVAL_SECONDS = 0.002  # between two readings


class PeakMemory:
    """A context manager that measures the peak of resident memory above its start.

    `megabytes` is NaN where the system does not report resident memory.
    """

    def __init__(self) -> None:
        self.megabytes = np.nan
        self._peak = self._start = 0
        self._stop = threading.Event()

    def __enter__(self) -> "PeakMemory":
        self._peak = self._start = _resident_bytes()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            self._peak = max(self._peak, _resident_bytes())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._start:
            self.megabytes = (self._peak - self._start) / 2**20


def _resident_bytes() -> int:
    """Return the resident memory of this process, or zero where it is not known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
