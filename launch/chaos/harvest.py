"""The harvest: every row that the pool of a running job ever held, read from its files before it is evicted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headrace.buffer.view import PoolView
from headrace.common.errors import PoolError
from headrace.launch.chaos.history import History

COLUMNS = ("id", "actor", "stream", "seq", "episode", "t", "learner_epoch", "learner_step", "digest", "outcome")
EVERY_S = 0.1


class Harvest:
    """Reads new rows again and again, and after each new owner of the pool all rows that live.

    Its history gets a line for each row that was not there before, or is not what it was; and one for a range of ids that was
    evicted before it was read. The last one says how many rows lived at the end, and from which id on.

    Args:
        pool: the pool's directory, which need not exist yet.
        history: is told.
    """

    def __init__(self, pool: Path, history: History) -> None:
        self._pool, self._history = pool, history
        self._view: PoolView | None = None
        self._known: dict[int, list[Any]] = {}
        self._next = 0
        self._read_to = 0  # every id below was read once, or is told as unseen
        self._live = self._tail = 0  # what one reading after the end finds
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-harvest", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Read what is there at the end, all of it, and stop; raises what ended the thread before."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._view, self._live = None, 0
        self.gather()
        self._history.write("left", self._live, self._tail)

    def _run(self) -> None:
        try:
            while not self._stop.wait(EVERY_S):
                self.gather()
        except Exception as error:
            self._failure = error

    def gather(self) -> None:
        """Read what is new."""
        try:
            if self._view is None or not self._view.is_current:
                self._view = PoolView(self._pool)
                self._history.write("opened", self._view.tail, self._view.head)
                self._next = self._tail = self._view.tail  # all of them again: a new owner may have changed what it found
            self._read(self._view)
        except PoolError:  # not there yet, or between two owners
            self._view = None

    def _read(self, view: PoolView) -> None:
        for row in view.dump(self._next):
            self._tell_unseen(row["id"])
            line = [row[name] for name in COLUMNS]
            if self._known.get(row["id"]) != line:
                self._history.write("row", *line)
                self._known[row["id"]] = line
            self._live += 1
            self._next = row["id"] + 1
            self._read_to = max(self._read_to, self._next)
        if len(self._known) > 2 * (view.head - view.tail):
            self._known = {i: line for i, line in self._known.items() if i >= view.tail}

    def _tell_unseen(self, row: int) -> None:
        if row > self._read_to:
            self._history.write("unseen", self._read_to, row)
