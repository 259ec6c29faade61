"""Peak memory above the start."""

import time
from pathlib import Path

import numpy as np

from vcmc.inference.memory import PeakMemory


def test_the_peak_is_measured_even_if_the_memory_is_free_again():
    with PeakMemory() as memory:
        array = np.ones(2**24)  # 128 MB
        array += 1
        for _ in range(20):  # the watching thread gets a few readings, on a busy machine too
            array.sum()
            time.sleep(0.02)
        del array
    if not Path("/proc/self/statm").exists():
        assert np.isnan(memory.megabytes)
    else:
        assert memory.megabytes > 100


def test_little_work_takes_little_memory():
    with PeakMemory() as memory:
        sum(range(1000))
    assert not memory.megabytes > 50
