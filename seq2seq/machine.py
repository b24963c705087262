"""What this process may use of the machine."""

import os


def cores() -> int:
    """CPU cores that this process may run on, which taskset or SLURM may have left fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
