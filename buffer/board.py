"""The board: what the parts of one buffer's service share."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from headrace.buffer.worker import Totals, Work
from headrace.common.wire.refusals import Refusals


@dataclass
class Traffic:
    """Bytes of frames in sessions that agreed to compression: as they are, and as they travelled."""

    plain_bytes: int = 0
    wire_bytes: int = 0

    def add(self, plain: int, wire: int) -> None:
        """Count frames."""
        self.plain_bytes += plain
        self.wire_bytes += wire


@dataclass
class Board:
    """What the parts of one service share.

    Attributes:
        totals: the pool's counters as of the last finished work.
        work: waits for the pool's thread.
        refused: messages and requests that were not accepted.
        traffic: what compression did to rows, batches and weights, by that name.
    """

    totals: Totals
    work: deque[Work] = field(default_factory=deque)
    refused: Refusals = field(default_factory=lambda: Refusals("messages"))
    traffic: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
