"""Real uplinks that write and label numbered rows for as long as they live, and a learner that rates these.

What was offered and acknowledged is shared with the campaign through a mapped file.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from campaign import numbered
from campaign.numbered import Key, Written
from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.common.clock import MonotonicClock
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.feed import Feed

Array = np.ndarray[Any, Any]
WRITERS = 2
STREAM, OFFERED, ACKED, ACKS, REJECTED, LABELS, LABELLED, RATED = range(8)
SIZES = (1, 2, 7, 32, 32, 64, 200, 3000)  # rows of a block: the last ones wrap often, and take several commits
OUTBOX_BYTES = 4 << 20
LEAST_PART_BYTES = 4096  # to which blocks are joined where messages are to be short: some 30 rows
WELCOME_S, WAIT_S = 300.0, 0.002
BATCH, PREFETCH, RATE_EVERY_S = 256, 4, 0.02


class Progress:
    """What each writer has offered and what was acknowledged to it; written by the writers, read by anyone."""

    def __init__(self, path: Path, create: bool = False) -> None:
        self.cells: Array = np.memmap(path, "<i8", "w+" if create else "r+", shape=(WRITERS, 8))

    def total(self, column: int) -> int:
        """Sum over the writers."""
        return int(self.cells[:, column].sum())

    def acked(self) -> int:
        """Rows acknowledged to all writers."""
        return self.total(ACKED)

    def acks(self) -> int:
        """Acknowledgements of blocks that came."""
        return self.total(ACKS)

    def known(self) -> Array:
        """A copy of everything: what was acknowledged by now."""
        return np.array(self.cells)

    def written(self, before: Array) -> dict[Key, Written]:
        """Of each writer's stream: what was acknowledged ``before`` (of :meth:`known`), and what was offered by now."""
        return {
            (i, int(now[STREAM])): Written(int(then[ACKED]), int(now[OFFERED]), int(then[LABELLED]), int(now[LABELS]))
            for i, (then, now) in enumerate(zip(before, self.known(), strict=True))
            if now[STREAM]
        }


class NotingUplink(Uplink):
    """An uplink that notes in ``cells`` what was acknowledged."""

    def __init__(self, cells: Array, outbox_bytes: int, part_bytes: int) -> None:
        super().__init__(numbered.SPEC, Outbox(Memory(outbox_bytes)), part_bytes)
        self._cells = cells

    def welcomed(self, welcome: m.Welcome) -> None:
        """The buffer says how far it knows our stream, which acknowledges as much."""
        super().welcomed(welcome)
        self._cells[STREAM] = self.stream
        self._cells[ACKED] = max(int(self._cells[ACKED]), dict(welcome.streams).get(self.stream, 0))

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """Note acknowledgements and refusals; labels are answered in their order."""
        super().received(message, frames)
        if isinstance(message, m.Ack):
            self._cells[ACKED] = max(int(self._cells[ACKED]), message.seq)
            self._cells[ACKS] += 1
        elif isinstance(message, m.Reject):
            self._cells[REJECTED] += message.last - message.first + 1
        elif isinstance(message, m.Labelled):
            self._cells[LABELLED] = max(int(self._cells[LABELLED]), message.number)
            self._cells[REJECTED] += bool(message.reason)


class Writer:
    """One actor of the wire; blocks of random sizes at ``rate`` rows a second once ``fill`` rows are offered, and their labels.

    Args:
        number: of the writer; its rows say it.
        endpoint: of the buffer.
        cells: its own of :class:`Progress`.
        rate: rows a second.
        fill: rows that go as fast as they can.
        largest: rows of a message; none: blocks come in all ``SIZES``, and leave as they come.
    """

    def __init__(self, number: int, endpoint: str, cells: Array, rate: float, fill: int, largest: int | None = None) -> None:
        network = NetworkConfig(fragment_bytes=LEAST_PART_BYTES) if largest else NetworkConfig()
        self._sizes = [n for n in SIZES if n <= (largest or n)]
        self._number, self._cells, self._rate, self._fill = number, cells, rate, fill
        self._rng = np.random.default_rng(number)
        self._uplink = NotingUplink(cells, OUTBOX_BYTES, network.fragment_bytes)
        hello = new_hello("actor", numbered.actor_id(number), spec=numbered.SPEC.to_dict())
        self.link = Link(hello, self._uplink, endpoint, network, MonotonicClock())
        self._next, self._due, self._labels = 1, 0.0, 0
        self._block = self._make()

    def step(self) -> bool:
        """Offer the next block if it is due; whether it was taken."""
        self.link.check()
        now = time.monotonic()
        if now < self._due:
            return False
        rows = self._block.n_rows
        self._cells[OFFERED] = self._next + rows - 1  # before it can be sent
        if not self._uplink.offer(self._block, 0.0):
            return False
        self._uplink.executed(rows)
        self._next += rows
        self._label()
        self.link.wake()
        self._due = max(now - 1.0, self._due) + rows / self._rate if self._next > self._fill else 0.0
        self._block = self._make()
        return True

    def _label(self) -> None:
        while (self._labels + 1) * numbered.PART < self._next:
            self._cells[LABELS] = self._labels + 1
            if not self._uplink.label(numbered.label(self._labels + 1)):
                return  # the box is full: again with the next block
            self._labels += 1

    def _make(self) -> Any:
        return numbered.block(self._number, self._next, int(self._rng.choice(self._sizes)))


class Rater:
    """A learner of the wire that draws batches and gives their rows the priorities that follow from them."""

    def __init__(self, endpoint: str, cells: Array) -> None:
        self._cells, self._feed, self._due = cells, Feed(BATCH, PREFETCH, statistics=False), 0.0
        self.link = Link(new_hello("learner", "rater"), self._feed, endpoint, NetworkConfig(), MonotonicClock())
        self._feed.start_drawing()

    def step(self) -> None:
        """Rate a batch, if one is there and it is time to."""
        self.link.check()
        now = time.monotonic()
        if now < self._due or not (batches := self._feed.get(0.0)):
            return
        self._due = now + RATE_EVERY_S
        for batch in batches:
            ratings = numbered.rating(batch.obs["obs"][:, 0].astype(np.int64), numbered.seqs(batch))
            self._feed.rate(batch.epoch, batch.ids.copy(), ratings)
            self._cells[RATED] += len(batch)
        self.link.wake()


def write(progress: Progress, endpoints: Sequence[str], rate: float, fill: int, largest: int | None) -> None:
    """Be all writers, each at its endpoint, and the rater until standard input ends."""
    each = zip(endpoints, progress.cells, strict=True)
    writers = [Writer(i, endpoint, cells, rate / WRITERS, fill // WRITERS, largest) for i, (endpoint, cells) in enumerate(each)]
    rater = Rater(endpoints[0], progress.cells[0])
    for client in (*writers, rater):
        client.link.start()
    for writer in writers:
        writer.link.wait_welcome(WELCOME_S)
    while not select.select([sys.stdin], [], [], 0)[0]:
        taken = [writer.step() for writer in writers]
        rater.step()
        if not any(taken):
            time.sleep(WAIT_S)
    for client in (*writers, rater):
        client.link.close(Goodbye(False, "written"))


def counts(now: Array, before: Array) -> dict[str, int]:
    """How many rows and labels were acknowledged, and rows rated, between two of :meth:`Progress.known`."""
    grown = (now - before).sum(axis=0)
    return {"acked": int(grown[ACKED]), "labels": int(grown[LABELLED]), "rated": int(grown[RATED])}
