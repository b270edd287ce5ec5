"""Following a run for its weights alone: what a policy server says to its buffer."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from headrace.actor.weights import WeightInbox
from headrace.common.weights import NO_VERSION, Version, WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, encode


class Follower:
    """The role on a link of a process that fetches weights and produces nothing.

    Args:
        part_bytes: length of one range of weights.

    Attributes:
        about: what heartbeats tell; replaced, never changed.
        stop: the buffer's request to end, if there was one.
    """

    def __init__(self, part_bytes: int) -> None:
        self._inbox = WeightInbox(part_bytes)
        self._lock = threading.Lock()
        self._version = NO_VERSION
        self.about: dict[str, Any] = {}
        self.stop: m.Stop | None = None

    def take(self, *, ema: bool) -> WeightSet | None:
        """The newest weights, once."""
        with self._lock:
            return self._inbox.take(ema=ema)

    def applied(self, version: Version) -> None:
        """This version decides from now on."""
        self._version = version

    # --- link's thread ----------------------------------------------------------------------------------------------

    def welcomed(self, welcome: m.Welcome) -> None:
        """Ask for everything again."""
        with self._lock:
            self._inbox.fetch.restart()

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the buffer."""
        with self._lock:
            if isinstance(message, m.State):
                self._inbox.fetch.announced(message)
            elif isinstance(message, m.WeightsPart):
                self._inbox.put(message, frames)
            elif isinstance(message, m.Stop):
                self.stop = message

    def outgoing(self, room: int) -> Iterable[Parts]:
        """Requests for weights."""
        with self._lock:
            return [[encode(get)] for get in self._inbox.fetch.requests()]

    def pulse(self) -> m.Pulse:
        """The heartbeat."""
        about = {**self.about, "refused_weights": self._inbox.refused}
        return m.Pulse(0, 0, self._version.epoch, self._version.step, about)

    def position(self) -> tuple[int, int]:
        """Nothing is executed here."""
        return 0, 0
