"""Real uplinks that write numbered rows for as long as they live, and what they know of them, shared through a file."""

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
from headrace.actor.uplink import Uplink
from headrace.common.clock import MonotonicClock
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig

Array = np.ndarray[Any, Any]
WRITERS = 2
STREAM, OFFERED, ACKED, ACKS, REJECTED = range(5)
SIZES = (1, 2, 7, 32, 32, 64, 200, 3000)  # rows of a block: the last ones wrap often, and take several commits
OUTBOX_BYTES = 4 << 20
WELCOME_S, WAIT_S = 60.0, 0.002


class Progress:
    """What each writer has offered and what was acknowledged to it; written by the writers, read by anyone."""

    def __init__(self, path: Path, create: bool = False) -> None:
        self.cells: Array = np.memmap(path, "<i8", "w+" if create else "r+", shape=(WRITERS, 5))

    def acked(self) -> int:
        """Rows acknowledged to all writers."""
        return int(self.cells[:, ACKED].sum())

    def acks(self) -> int:
        """Acknowledgements of blocks that came."""
        return int(self.cells[:, ACKS].sum())

    def rejected(self) -> int:
        """Rows that the buffer refused."""
        return int(self.cells[:, REJECTED].sum())

    def written(self, acked: Sequence[int] | None = None) -> dict[Key, Written]:
        """Of each writer's stream; ``acked`` are the last acknowledged seqs as they were read before."""
        known = self.cells[:, ACKED] if acked is None else acked
        return {
            (i, int(cell[STREAM])): Written(int(known[i]), int(cell[OFFERED]))
            for i, cell in enumerate(self.cells)
            if cell[STREAM]
        }


class NotingUplink(Uplink):
    """An uplink that notes in ``cells`` what was acknowledged."""

    def __init__(self, cells: Array, outbox_bytes: int, part_bytes: int) -> None:
        super().__init__(numbered.SPEC, outbox_bytes, part_bytes)
        self._cells = cells

    def welcomed(self, welcome: m.Welcome) -> None:
        """The buffer says how far it knows our stream, which acknowledges as much."""
        super().welcomed(welcome)
        self._cells[STREAM] = self._stream
        self._cells[ACKED] = max(int(self._cells[ACKED]), dict(welcome.streams).get(self._stream, 0))

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """Note acknowledgements and refusals."""
        super().received(message, frames)
        if isinstance(message, m.Ack):
            self._cells[ACKED] = max(int(self._cells[ACKED]), message.seq)
            self._cells[ACKS] += 1
        elif isinstance(message, m.Reject):
            self._cells[REJECTED] += message.last - message.first + 1


class Writer:
    """One actor of the wire; blocks of random sizes at ``rate`` rows a second once ``fill`` rows are offered.

    Args:
        number: of the writer; its rows say it.
        endpoint: of the buffer.
        cells: its own of :class:`Progress`.
        rate: rows a second.
        fill: rows that go as fast as they can.
    """

    def __init__(self, number: int, endpoint: str, cells: Array, rate: float, fill: int) -> None:
        network = NetworkConfig()
        self._number, self._cells, self._rate, self._fill = number, cells, rate, fill
        self._rng = np.random.default_rng(number)
        self._uplink = NotingUplink(cells, OUTBOX_BYTES, network.fragment_bytes)
        hello = new_hello("actor", numbered.actor_id(number), spec=numbered.SPEC.to_dict())
        self.link = Link(hello, self._uplink, endpoint, network, MonotonicClock())
        self._next, self._due = 1, 0.0
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
        self.link.wake()
        self._next += rows
        self._due = max(now - 1.0, self._due) + rows / self._rate if self._next > self._fill else 0.0
        self._block = self._make()
        return True

    def _make(self) -> Any:
        return numbered.block(self._number, self._next, int(self._rng.choice(SIZES)))


def write(progress: Progress, endpoint: str, rate: float, fill: int) -> None:
    """Be all writers until standard input ends."""
    writers = [Writer(i, endpoint, progress.cells[i], rate / WRITERS, fill // WRITERS) for i in range(WRITERS)]
    for writer in writers:
        writer.link.start()
    for writer in writers:
        writer.link.wait_welcome(WELCOME_S)
    while not select.select([sys.stdin], [], [], 0)[0]:
        taken = [writer.step() for writer in writers]
        if not any(taken):
            time.sleep(WAIT_S)
    for writer in writers:
        writer.link.close(Goodbye(False, "written"))
