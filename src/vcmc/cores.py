"""How many cores this process may use: on a shared machine, fewer than there are."""

import os


def num_cores() -> int:
    """Cores that this thread may run on, where the system tells; else all of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
