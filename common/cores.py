"""How many cores this process may use, which is not how many the machine has."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores of the CPU affinity, cut by the cgroup's quota; at least 1.

    A container that may use two cores' time sees all cores of its host, and threads for all of them would wait for each other.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text().split()
        if quota != "max":
            allowed = min(allowed, round(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, allowed)
