"""How much memory a piece of work takes."""

import os
import threading

import numpy as np

INTERVAL = 0.002  # seconds between two looks at the memory in use


class PeakMemory:
    """How much memory is in use at most, beyond what was in use before; not a number where that cannot be asked."""

    def __init__(self) -> None:
        self.megabytes = np.nan
        self._most = self._first = 0
        self._done = threading.Event()

    def __enter__(self) -> "PeakMemory":
        self._most = self._first = _resident()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL):
            self._most = max(self._most, _resident())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._first:
            self.megabytes = (self._most - self._first) / 2**20


def _resident() -> int:
    """Bytes that this process has in memory, or zero where that is not known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
