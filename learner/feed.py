"""The feed: batches kept ahead of the learner, and what the learner says to its buffer, shared with the link's thread."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from headrace.common.batch import Batch
from headrace.common.errors import SpecError, WireError
from headrace.common.specs import TransitionSpec
from headrace.common.staging import batch_nbytes
from headrace.common.statistics import ObsStatistics
from headrace.common.weights import WeightSet
from headrace.common.wire import messages as m
from headrace.common.wire.batches import AHEAD_BYTES, Incoming, parse_drawn, rate_message
from headrace.common.wire.codec import Frame, Parts, encode, parse_statistics
from headrace.learner.reading import Job, OpenView, Reading, Torn

LOG = logging.getLogger(__name__)
Array = np.ndarray[Any, Any]
MAX_RATINGS = 64  # batches that wait
JOINED_ROWS = 1 << 14
FOREIGN = ("policy", "learner")  # reasons for which no publish of this learner will ever be taken


class Feed:
    """The learner's role on a link.

    Args:
        batch_size: rows a batch.
        prefetch: batches kept ahead, as far as they fit into ``AHEAD_BYTES``; two always may.
        statistics: whether to ask for observation statistics too.
        reading: ``mapped``, ``socket`` or ``auto``.
        open_view: maps the pool of a buffer on this host.
        changed: the lock, where several feeds are waited for together.
    """

    def __init__(
        self,
        batch_size: int,
        prefetch: int,
        *,
        statistics: bool,
        reading: str = "socket",
        open_view: OpenView | None = None,
        changed: threading.Condition | None = None,
    ) -> None:
        self._batch_size, self._prefetch, self._ask_statistics = batch_size, prefetch, statistics
        self.changed = self._changed = changed or threading.Condition()
        self._rows = batch_size  # of all batches of one update
        self._reading = Reading(reading, open_view, batch_size)
        self._batches: deque[Batch] = deque()
        self._next: list[Batch] | None = None  # the first of them, once somebody looked
        self._jobs: deque[Job] = deque()
        self._torn: dict[int, Torn] = {}
        self._redraws: deque[m.Redraw] = deque()
        self._ticket = self._redrawn = 0
        self._ratings: deque[tuple[int, Array, Array]] = deque(maxlen=MAX_RATINGS)
        self._incoming: Incoming | None = None
        self._failure: Exception | None = None
        self._spec: TransitionSpec | None = None
        self._delivered = self._wanted = self._ahead = 0
        self._most_ahead = prefetch
        self._drawing = self._told_mapped = self._withdraws = False
        self._halved: Collection[str] = ()
        self._publish: WeightSet | None = None
        self._sending: WeightSet | None = None
        self._stop: m.Stop | None = None
        self._report: dict[str, Any] = {}
        self.statistics: ObsStatistics | None = None
        self.summary: dict[str, Any] = {}
        self.heard = 0  # states of the buffer
        self.epoch = 0
        self.refused_publishes = 0

    # --- training loop ----------------------------------------------------------------------------------------------

    def start_drawing(self) -> None:
        """Begin to ask for batches: each one that comes is an update granted, so not before the learner is ready."""
        self._drawing = True

    def stop_drawing(self) -> None:
        """Ask for no more: what was granted before may still come."""
        with self._changed:
            self._drawing, self._withdraws = False, True

    def get(self, timeout_s: float) -> list[Batch] | None:
        """What the next update takes, or none within ``timeout_s``: a batch, and the actor's own where that is separate.

        Its memory is used again once nothing refers to its arrays.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._batches or self._failure), timeout_s):
                return None
            self.check()
            self._ahead -= 1
            rows, parts = self._batches.popleft(), self._next
            self._next = None
        return parts or rows.split(self._batch_size)

    def peek(self) -> list[Batch]:
        """What the next :meth:`get` will give, the very objects; nothing where that is not here yet."""
        with self._changed:
            if self._next is None and self._batches:
                self._next = self._batches[0].split(self._batch_size)
            return self._next or []

    def check(self) -> None:
        """Raise what ended the feed, if anything did."""
        if self._failure is not None:
            raise self._failure

    @property
    def failed(self) -> bool:
        """Whether :meth:`check` raises."""
        return self._failure is not None

    @property
    def spec(self) -> TransitionSpec | None:
        """Columns of the rows; none before the first welcome."""
        return self._spec

    @property
    def live_rows(self) -> int:
        """Rows that the buffer draws from, as it said last to a reader of several."""
        rows = self.summary.get(m.LIVE_ROWS, 0)
        return rows if isinstance(rows, int) and 0 <= rows < 1 << 40 else 0

    @property
    def must_draw(self) -> bool:
        """Whether the link should be woken to ask for more batches."""
        return self._drawing and self._demand() > self._wanted

    @property
    def stop(self) -> m.Stop | None:
        """The buffer's request to end, if there was one."""
        return self._stop

    def rate(self, epoch: int, ids: Array, errors: Array) -> None:
        """Tell the pool |td| of a batch's rows with the next message; the oldest that were not sent give way to many more.

        Args:
            epoch: ``Batch.epoch``.
            ids: ``(B,)`` int64.
            errors: ``(B,)`` float32; those that are not finite are left out.
        """
        known = np.isfinite(errors)
        with self._changed:
            self._ratings.append((epoch, ids[known], errors[known]))

    def publish(self, weights: WeightSet, halved: Collection[str] = ()) -> None:
        """Send weights as soon as the ones before are on the shelf; a set that was not sent yet is replaced.

        Args:
            weights: all of them.
            halved: names of tensors that travel in bfloat16.
        """
        with self._changed:
            self._publish, self._halved = weights, halved

    def wait_published(self, timeout_s: float) -> bool:
        """Whether all that was given to :meth:`publish` is on the shelf within ``timeout_s``; raises what :meth:`get` would."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: bool(self._failure) or (self._publish is None and self._sending is None), timeout_s
            )
            self.check()
        return done

    def report(self, values: dict[str, Any]) -> None:
        """What the next heartbeats tell about this learner."""
        self._report = values

    # --- gathering thread -------------------------------------------------------------------------------------------

    def gather(self, timeout_s: float) -> bool:
        """Put together what was drawn by id, if anything is within ``timeout_s``; whether rows must be asked for again."""
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._jobs), timeout_s):
                return False
            job = self._jobs.popleft()
        whole, torn = self._reading.gather(job)
        with self._changed:
            self._reading.drop_outdated()
            self._batches.extend(whole)
            for batch in torn:
                batch.redraws += 1
                self._ticket += 1
                self._torn[self._ticket] = batch
                self._redraws.append(batch.request(self._ticket, mapped=self._reading.mapped))
            self._redrawn += len(torn)
            self._changed.notify_all()
        return bool(torn)

    def fail(self, error: Exception) -> None:
        """End the feed: :meth:`get` raises ``error``."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    # --- link's thread ----------------------------------------------------------------------------------------------

    def welcomed(self, welcome: m.Welcome) -> None:
        """Start or go on with a session; batches already here stay, and what was to be drawn again is asked for again."""
        with self._changed:
            self._spec = TransitionSpec.from_dict(welcome.spec)
            self._rows = self._batch_size * max(1, welcome.mixes)
            self._most_ahead = min(self._prefetch, max(2, AHEAD_BYTES // batch_nbytes(self._spec, self._rows)))
            self._open_rows(welcome, self._spec)
            self.epoch = welcome.epoch
            self._delivered = self._wanted = 0
            self._ahead -= self._drop_incoming()
            self._redraws = deque(torn.request(i, mapped=self._reading.mapped) for i, torn in self._torn.items())
            self._publish = self._publish or self._sending  # it may have been lost with the session before
            self._sending = None
            self._changed.notify_all()

    def _open_rows(self, welcome: m.Welcome, spec: TransitionSpec) -> None:
        """Find out how rows are read in a new session."""
        self._reading.welcomed(welcome, spec)

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the buffer."""
        with self._changed:
            if isinstance(message, m.BatchHead):
                self._take_batch(message, frames)
            elif isinstance(message, m.BatchPiece):
                self._take_piece(message, frames)
            elif isinstance(message, m.DrawnHead):
                self._take_drawn(message, frames)
            elif isinstance(message, m.StatisticsHead) and self._spec is not None:
                self.statistics = parse_statistics(message.count, frames, self._spec)
            elif isinstance(message, m.State):
                self.heard += 1
                self.summary = message.report if isinstance(message.report, dict) else {}
            elif isinstance(message, m.Published):
                self._sending = None
                if message.reason in FOREIGN:
                    self._failure = SpecError(
                        f"the run's weights are of another {message.reason}: {message.detail}; start the learner with the"
                        " run's own config and --id"
                    )
                if message.reason:
                    self.refused_publishes += 1
                    LOG.warning("publish of step %d refused: %s %s", message.step, message.reason, message.detail)
            elif isinstance(message, m.Stop):
                self._stop = message
            self._changed.notify_all()

    def outgoing(self, room: int) -> Iterable[Parts]:
        """The demand for batches, and weights to publish."""
        out: list[Parts] = []
        weights = None
        with self._changed:
            demand = self._demand()
            mapped = self._reading.mapped
            if self._withdraws:
                self._withdraws, self._wanted = False, self._delivered
                out.append([encode(self._ask(self._wanted, mapped=mapped))])
            elif self._drawing and (demand > self._wanted or mapped != self._told_mapped):
                self._wanted, self._told_mapped = demand, mapped
                out.append([encode(self._ask(demand, mapped=mapped))])
            out.extend([encode(self._redraws.popleft())] for _ in range(len(self._redraws)))
            out.extend(self._rated())
            if self._publish is not None and self._sending is None:
                # made in a session before, perhaps; this learner holds the run under today's epoch, and no other is taken
                version = dataclasses.replace(self._publish.version, epoch=self.epoch)
                weights = self._sending = dataclasses.replace(self._publish, version=version)
                self._publish = None
        if weights is not None:  # which takes a while, and training goes on
            head = m.Publish(weights.version.epoch, weights.version.step)
            out.append([encode(head), weights.pack(self._halved)])
        return out

    def _ask(self, wanted: int, *, mapped: bool) -> m.Message:
        """A demand for batches, ``wanted`` in all in this session."""
        return m.Draw(wanted, self._batch_size, self._ask_statistics, mapped)

    def _rated(self) -> list[Parts]:
        """All ratings; those of one epoch travel together up to a bound."""
        groups: list[tuple[int, list[Array], list[Array]]] = []
        while self._ratings:
            epoch, ids, errors = self._ratings.popleft()
            if not groups or groups[-1][0] != epoch or sum(map(len, groups[-1][1])) + len(ids) > JOINED_ROWS:
                groups.append((epoch, [], []))
            groups[-1][1].append(ids)
            groups[-1][2].append(errors)
        return [rate_message(epoch, np.concatenate(ids), np.concatenate(errors)) for epoch, ids, errors in groups]

    def pulse(self) -> m.Pulse:
        """The heartbeat."""
        own = {"reading": self._reading.name, "batches_ahead": len(self._batches), "batches_redrawn": self._redrawn}
        return m.Pulse(report={**self._report, **own, "refused_publishes": self.refused_publishes})

    def position(self) -> tuple[int, int]:
        """Learners execute no env steps."""
        return 0, 0

    def _demand(self) -> int:
        """Batches wanted in all in this session; raised by half of those kept ahead.

        Each message, here and at the buffer, takes the interpreter from an update or a core from one of its processes. Asked
        for 16 at a time, not 2, batches for 100 updates/s cost 8 exchanges/s and not 50; actors follow, since what they may do
        grows with what is drawn, and send rows 8 at a time. Pendulum-v1 on two cores: 150 updates/s, which were 126.
        """
        demand = self._delivered + self._most_ahead - self._ahead
        return demand if demand - self._wanted >= max(1, self._most_ahead // 2) else self._wanted

    def _take_batch(self, head: m.BatchHead, frames: list[Frame]) -> None:
        spec = self._expect(head)
        self._ahead -= self._drop_incoming()
        self._incoming = Incoming(head, frames, self._reading.arrays(head.rows * head.batches), spec)
        self._count(head)
        self._finish_incoming()

    def _take_piece(self, piece: m.BatchPiece, frames: list[Frame]) -> None:
        if self._incoming is None:
            raise WireError("piece", "of no batch")
        self._incoming.add(piece, frames)
        self._finish_incoming()

    def _finish_incoming(self) -> None:
        if self._incoming is None or not self._incoming.complete:
            return
        head, batch = self._incoming.head, self._incoming.batch
        self._torn.pop(head.ticket, None)
        self._batches.extend(batch.split(head.rows))
        self._incoming = None

    def _drop_incoming(self) -> int:
        """Forget a batch whose rest will not come; how many updates are lost with it."""
        incoming, self._incoming = self._incoming, None
        return 0 if incoming is None or incoming.head.ticket else incoming.head.batches

    def _take_drawn(self, head: m.DrawnHead, frames: list[Frame]) -> None:
        torn = self._torn.get(head.ticket)
        self._expect(head, rows=self._rows if torn is None else len(torn.holes))
        self._reading.check(head.rows * head.batches)
        job = Job(head, *parse_drawn(head, frames), torn)
        self._torn.pop(head.ticket, None)
        self._count(head)
        self._jobs.append(job)

    def _expect(self, head: m.BatchHead | m.DrawnHead, rows: int = 0) -> TransitionSpec:
        rows = rows or self._rows
        if self._spec is None or head.rows != rows or head.batches < 1:
            raise WireError("size", f"{head.batches} batches of {head.rows} rows, asked for {rows}")
        if head.ticket and (head.batches != 1 or head.ticket not in self._torn):
            raise WireError("ticket", f"{head.ticket} was not asked for")
        return self._spec

    def _count(self, head: m.BatchHead | m.DrawnHead) -> None:
        if not head.ticket:
            self._delivered += head.batches
            self._ahead += head.batches
