"""The thread that gathers batches which the buffer drew by id, so that neither socket nor training waits for pages."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.learner.feed import Feed

LOOK_S = 0.2


class Gatherer:
    """Works for one feed; ``wake`` tells the link that rows must be asked for again."""

    def __init__(self, feed: Feed, wake: Callable[[], None]) -> None:
        self._feed, self._wake = feed, wake
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-gatherer", daemon=True)

    def start(self) -> None:
        """Start to gather."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10 * LOOK_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._feed.gather(LOOK_S):
                    self._wake()
            except Exception as error:  # raised where batches are taken
                self._feed.fail(error)
                return
