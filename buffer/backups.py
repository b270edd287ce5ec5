"""Snapshots of a running buffer's pool: when one is due, and the thread that writes it beside the service.

One at a time. A request during a snapshot is for the next one, since it must hold what is in the pool when it is made.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.buffer.pool import SACReplayPool
from headrace.common.errors import PoolError

LOG = logging.getLogger(__name__)
JOIN_S = 10.0
AGAIN_S = 5.0  # from the beginning of one that failed to the next, when some are due from time to time


class Backups:
    """Keeps the newest snapshots of one pool in ``directory``; driven by :meth:`tick`.

    Args:
        directory: of the snapshots.
        every_s: time from the beginning of one to the next (s); 0 makes them on request only.
        keep: newest ones that stay.
        now: the time, by the clock of :meth:`tick`.
    """

    def __init__(self, directory: Path, every_s: float, keep: int, now: float) -> None:
        self._directory, self._every_s, self._keep = directory, every_s, keep
        self._begun_at = now
        self._asked = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._bytes = (0, 0)
        self._begun = 0
        self._counts = {"written": 0, "failed": 0}
        self._last: dict[str, Any] = {"seconds": 0.0, "error": ""}

    def ask(self) -> int:
        """Make one as soon as possible; the number of snapshots, failed ones included, after which it is done."""
        self._asked = True
        return self._begun + 1

    def tick(self, pool: SACReplayPool | None, now: float) -> None:
        """Begin the snapshot that is due, if none is being written."""
        every_s = min(self._every_s, AGAIN_S) if self._last["error"] else self._every_s
        if pool is None or self._running or not (self._asked or 0 < every_s <= now - self._begun_at):
            return
        self._asked, self._begun_at, self._bytes = False, now, (0, 0)
        self._begun += 1
        self._thread = threading.Thread(target=self._write, args=(pool,), name="headrace-snapshot", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> str:
        """Why the last one was not written; empty when it was."""
        return str(self._last["error"])

    def report(self) -> dict[str, Any]:
        """For the status: counts, progress in bytes, and how the last one went."""
        done, total = self._bytes
        progress = {"running": self._running, "done_bytes": done, "total_bytes": total}
        return {"directory": str(self._directory), **self._counts, **progress, **self._last}

    @property
    def _running(self) -> bool:
        return self._begun > sum(self._counts.values())

    def close(self) -> None:
        """Give up what is being written; the snapshots before it are as they were."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _write(self, pool: SACReplayPool) -> None:
        begun = time.monotonic()
        try:
            pool.save(self._directory, self._progress, keep=self._keep)
        except (PoolError, OSError) as error:  # a run goes on without one; the next is tried when it is due
            LOG.warning("snapshot not written: %s", error)
            self._end("failed", begun, str(error))
        else:
            self._end("written", begun, "")

    def _end(self, how: str, begun: float, error: str) -> None:
        self._last = {"seconds": round(time.monotonic() - begun, 3), "error": error}
        self._counts = {**self._counts, how: self._counts[how] + 1}

    def _progress(self, done: int, total: int) -> None:
        self._bytes = (done, total)
        if self._stop.is_set():
            raise PoolError("the buffer ends")


def wait_for(
    report: Callable[[], dict[str, Any]], number: int, deadline_s: float, tell: Callable[[int, int], None]
) -> dict[str, Any]:
    """Poll ``report`` until ``number`` snapshots have ended; the report then.

    Raises:
        PoolError: the last one failed, or ``deadline_s`` (s) passed without progress.
    """
    seen, since = (-1, 0), time.monotonic()
    while True:
        now = report()
        if now["written"] + now["failed"] >= number:
            if now["error"]:
                raise PoolError(f"snapshot not written: {now['error']}")
            return now
        progress = (now["done_bytes"], now["total_bytes"])
        if progress != seen:
            seen, since = progress, time.monotonic()
            tell(*progress)
        if time.monotonic() > since + deadline_s:
            raise PoolError(f"no progress of the snapshot for {deadline_s:g} s, at {progress[0]} of {progress[1]} bytes")
        time.sleep(0.1)
