"""What processes take of memory, as the kernel counts it, and a control group (v1) that limits them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from campaign.process import Unable

GROUPS = Path("/sys/fs/cgroup/memory")
PRIVATE = ("RssAnon", "RssShmem")  # a mapped file's pages can be dropped, and are not among them
POLL_S = 0.02


def counted(pid: int, *names: str) -> int:
    """Bytes of ``/proc/PID/status`` under these names together; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.partition(":")[0] in names)


class Peak:
    """The most private memory of one process while it is watched.

    Attributes:
        most: bytes so far.
        samples: (monotonic time, bytes), one a second.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._stop = pid, threading.Event()
        self.most = 0
        self.samples: list[tuple[float, int]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            now, size = time.monotonic(), counted(self._pid, *PRIVATE)
            self.most = max(self.most, size)
            if not self.samples or now >= self.samples[-1][0] + 1:
                self.samples.append((now, size))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@dataclass(frozen=True)
class Group:
    """One control group."""

    path: Path

    @property
    def words(self) -> list[str]:
        """What comes before a command line that is to run in it."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    @property
    def kills(self) -> int:
        """Processes in it that were killed for want of memory."""
        lines = (self.path / "memory.oom_control").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextlib.contextmanager
def group(limit: int) -> Iterator[Group]:
    """A control group of ``limit`` bytes, gone afterwards; its processes must have ended by then.

    Raises:
        Unable: this machine lets us make none.
    """
    path = GROUPS / f"headrace-{os.getpid()}-{time.monotonic_ns()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        raise Unable(f"a memory control group (v1) needs root: {error}") from error
    try:
        yield Group(path)
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    for _ in range(100):  # what has just ended is there a moment longer
        with contextlib.suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.05)
