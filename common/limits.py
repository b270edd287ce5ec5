"""Limits of this process: as many open files as the system allows, and a cap on the private memory that it may ask for.

The cap is the soft ``RLIMIT_DATA``: it counts what is private and writable, so it leaves the mapped pool alone, which
``RLIMIT_AS`` would refuse. What asks for more gets no memory: Python raises MemoryError, and a library ends the process.
Connections need no limit of ZeroMQ raised: its ``MAX_SOCKETS`` counts sockets that are made, and one takes any number of peers.
"""

from __future__ import annotations

import resource
from pathlib import Path


def raise_open_files() -> int:
    """Let this process and its children have as many open files as may be allowed without privileges; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def cap_memory(more: int) -> int:
    """Let this process take ``more`` bytes of private memory than it has now, and no further; the limit in bytes.

    Only the soft limit is set, and never above the hard one.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = private_bytes() + more
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return limit


def private_bytes() -> int:
    """What ``RLIMIT_DATA`` counts of this process: private writable memory, touched or not; 0 where /proc is absent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)
