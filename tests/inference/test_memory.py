"""Peak memory above the start."""

import mmap
import time
from pathlib import Path

import numpy as np

from vcmc.inference.memory import PeakMemory


def test_the_peak_is_measured_even_if_the_memory_is_free_again():
    # new pages of the system: an array might get memory that the process has and does not use
    with PeakMemory() as memory, mmap.mmap(-1, 2**27) as pages:  # 128 MB
        for page in range(0, len(pages), mmap.PAGESIZE):
            pages[page] = 1
        time.sleep(0.2)  # the watching thread gets a few readings, on a busy machine too
    if not Path("/proc/self/statm").exists():
        assert np.isnan(memory.megabytes)
    else:
        assert memory.megabytes > 100


def test_little_work_takes_little_memory():
    with PeakMemory() as memory:
        sum(range(1000))
    assert not memory.megabytes > 50
