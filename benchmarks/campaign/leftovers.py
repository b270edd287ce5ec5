"""What processes leave behind when they have ended: processes, shared memory, a port that is still taken."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import psutil

SHARED = Path("/dev/shm")
OURS = ("headrace", "torch", "psm_", "sem.")  # how the names begin of what headrace and its libraries make there


def shared_memory() -> frozenset[str]:
    """Names of the files in shared memory that are this user's, and of headrace or its libraries."""
    found = set()
    for path in SHARED.iterdir() if SHARED.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith(OURS) and path.lstat().st_uid == os.getuid():
                found.add(path.name)
    return frozenset(found)


def processes(*words: str) -> list[psutil.Process]:
    """Living processes, this one left out, whose command line or environment has one of ``words``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            text = "\0".join([*process.cmdline(), *process.environ().values()])
            if process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE and any(word in text for word in words):
                found.append(process)
    return found


def port_is_free(endpoint: str) -> bool:
    """Whether nobody listens at ``tcp://HOST:PORT``."""
    parts = urlsplit(endpoint)
    with socket.socket() as s:
        s.settimeout(1.0)
        return s.connect_ex((parts.hostname, parts.port)) != 0


class Leftovers:
    """What was there before, so that it is not counted.

    Args:
        place: directory of all files of the processes that are watched; it is in their words or environment.
    """

    def __init__(self, place: Path) -> None:
        self._place, self._shared = place, shared_memory()

    def count(self, *endpoints: str) -> dict[str, int]:
        """``orphans``, ``sockets`` and ``shared_files`` that are left, once all is to have ended; orphans are killed."""
        orphans = processes(str(self._place))
        found = {
            "orphans": len(orphans),
            "sockets": self.count_sockets(*endpoints),
            "shared_files": len(shared_memory() - self._shared),
        }
        for process in orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return found

    def count_sockets(self, *endpoints: str) -> int:
        """At how many of these somebody listens."""
        return sum(not port_is_free(endpoint) for endpoint in endpoints)
