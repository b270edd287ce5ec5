"""The feed: batches kept ahead of the learner, and what the learner says to its buffer, shared with the link's thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from headrace.common.batch import Batch
from headrace.common.errors import WireError
from headrace.common.specs import TransitionSpec
from headrace.common.statistics import ObsStatistics
from headrace.common.weights import WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, encode, parse_batch, parse_statistics

LOG = logging.getLogger(__name__)


class Feed:
    """The learner's role on a link.

    Args:
        batch_size: rows a batch.
        prefetch: batches kept ahead.
        statistics: whether to ask for observation statistics too.
    """

    def __init__(self, batch_size: int, prefetch: int, *, statistics: bool) -> None:
        self._batch_size, self._prefetch, self._ask_statistics = batch_size, prefetch, statistics
        self._changed = threading.Condition()
        self._batches: deque[Batch] = deque()
        self._spec: TransitionSpec | None = None
        self._delivered = self._wanted = 0
        self._drawing = False
        self._publish: WeightSet | None = None
        self._sending: WeightSet | None = None
        self._stop: m.Stop | None = None
        self._report: dict[str, Any] = {}
        self.statistics: ObsStatistics | None = None
        self.summary: dict[str, Any] = {}
        self.epoch = 0
        self.refused_publishes = 0

    # --- training loop ----------------------------------------------------------------------------------------------

    def start_drawing(self) -> None:
        """Begin to ask for batches: each one that comes is an update granted, so not before the learner is ready."""
        self._drawing = True

    def get(self, timeout_s: float) -> Batch | None:
        """The next batch, or none within ``timeout_s``."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._batches), timeout_s):
                return None
            return self._batches.popleft()

    @property
    def must_draw(self) -> bool:
        """Whether the link should be woken to ask for more batches."""
        return self._drawing and self._demand() > self._wanted

    @property
    def stop(self) -> m.Stop | None:
        """The buffer's request to end, if there was one."""
        return self._stop

    def publish(self, weights: WeightSet) -> None:
        """Send weights as soon as the ones before are on the shelf; a set that was not sent yet is replaced."""
        with self._changed:
            self._publish = weights

    def wait_published(self, timeout_s: float) -> bool:
        """Whether all that was given to :meth:`publish` is on the shelf within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._publish is None and self._sending is None, timeout_s)

    def report(self, values: dict[str, Any]) -> None:
        """What the next heartbeats tell about this learner."""
        self._report = values

    # --- link's thread ----------------------------------------------------------------------------------------------

    def welcomed(self, welcome: m.Welcome) -> None:
        """Start or go on with a session; batches already here stay."""
        with self._changed:
            self._spec = TransitionSpec.from_dict(welcome.spec)
            self.epoch = welcome.epoch
            self._delivered = self._wanted = 0
            self._publish = self._publish or self._sending  # it may have been lost with the session before
            self._sending = None
            self._changed.notify_all()

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the buffer."""
        with self._changed:
            if isinstance(message, m.BatchHead):
                self._take_batch(message, frames)
            elif isinstance(message, m.StatisticsHead) and self._spec is not None:
                self.statistics = parse_statistics(message.count, frames, self._spec)
            elif isinstance(message, m.State):
                self.summary = message.report if isinstance(message.report, dict) else {}
            elif isinstance(message, m.Published):
                self._sending = None
                if message.reason:
                    self.refused_publishes += 1
                    LOG.warning("publish of step %d refused: %s %s", message.step, message.reason, message.detail)
            elif isinstance(message, m.Stop):
                self._stop = message
            self._changed.notify_all()

    def outgoing(self, room: int) -> Iterable[Parts]:
        """The demand for batches, and weights to publish."""
        out: list[Parts] = []
        with self._changed:
            demand = self._demand()
            if self._drawing and demand > self._wanted:
                self._wanted = demand
                out.append([encode(m.Draw(demand, self._batch_size, self._ask_statistics))])
            if self._publish is not None and self._sending is None:
                weights = self._sending = self._publish
                self._publish = None
                head = m.Publish(weights.version.epoch, weights.version.step)
                out.append([encode(head), weights.pack()])
        return out

    def pulse(self) -> m.Pulse:
        """The heartbeat."""
        return m.Pulse(
            report={**self._report, "batches_ahead": len(self._batches), "refused_publishes": self.refused_publishes}
        )

    def position(self) -> tuple[int, int]:
        """Learners execute no env steps."""
        return 0, 0

    def _demand(self) -> int:
        """Batches wanted in all in this session; raised in steps of half the prefetch to save messages."""
        demand = self._delivered + self._prefetch - len(self._batches)
        return demand if demand - self._wanted >= max(1, self._prefetch // 2) else self._wanted

    def _take_batch(self, head: m.BatchHead, frames: list[Frame]) -> None:
        if self._spec is None or head.rows != self._batch_size:
            raise WireError("size", f"a batch of {head.rows} rows, asked for {self._batch_size}")
        self._batches.append(parse_batch(head, frames, self._spec))
        self._delivered += 1
