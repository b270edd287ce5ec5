"""The learner's session with the home shard of several: updates are granted there, and their rows drawn from all shards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headrace.common.specs import TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame
from headrace.learner.feed import Feed


class Updates(Feed):
    """A feed without rows: grants, weights to publish, and the run's news.

    Args:
        batch_size: rows of an update of this rank, which all shards together have to hold.
        prefetch: updates that are granted ahead.
        changed: the lock that it shares with the feeds of the rows.

    Attributes:
        about: what heartbeats tell of these.
    """

    def __init__(self, batch_size: int, prefetch: int, changed: threading.Condition | None = None) -> None:
        super().__init__(batch_size, prefetch, statistics=False, changed=changed)
        self.about: Callable[[], dict[str, Any]] = dict

    @property
    def granted(self) -> int:
        """Updates that were granted and not used."""
        return self._ahead

    def use(self) -> None:
        """An update is made of what was granted."""
        with self._changed:
            self._ahead -= 1

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the home shard."""
        if not isinstance(message, m.Granted):
            super().received(message, frames)
            return
        with self._changed:
            self._delivered += message.updates
            self._ahead += message.updates
            self._changed.notify_all()

    def pulse(self) -> m.Pulse:
        """The heartbeat."""
        own = {"updates_ahead": self._ahead, "refused_publishes": self.refused_publishes}
        return m.Pulse(report={**self._report, **own, **self.about()})

    def _open_rows(self, welcome: m.Welcome, spec: TransitionSpec) -> None:
        """There are none."""

    def _ask(self, wanted: int, *, mapped: bool) -> m.Message:
        return m.Claim(wanted, self._batch_size)
