"""One client's wire state at the buffer: byte credit, fragments, demand for batches, and the allowance that it was told."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.buffer.demand import Demand
from headrace.buffer.ledger import STREAMS_PER_ACTOR
from headrace.buffer.pacing import Allowance
from headrace.common.wire.fleet import Session
from headrace.common.wire.fragments import Joiner
from headrace.common.wire.messages import Ack, Received

MOST_DECLINED = 32  # more answers to garbage than that would only fill its queue


@dataclass
class Client:
    """Wire state of one session.

    Attributes:
        taken: bytes received that its side counts too: all but heartbeats.
        queued: bytes of them that wait for the pool's thread, and give no credit yet.
        turn: whether what it has sent of a message that is not complete gives credit, so that the rest can come.
        landing: whether a message that needed a turn is complete, and not in the pool yet.
        silent: whether nothing came of it for some heartbeats: what it were granted now might be lost with it.
        state_at: when it last heard the buffer's state.
        acked: the last ack of each stream that was said to it, to be said again while it waits for one.
        changed: number of the last change that it asked for, and the answer.
    """

    session: Session
    joiner: Joiner
    taken: int = 0
    queued: int = 0
    turn: bool = False
    landing: bool = False
    silent: bool = False
    demand: Demand = field(default_factory=Demand)
    allowance: Allowance = field(default_factory=lambda: Allowance(0, 0, False))
    state_at: float = 0.0
    acked: dict[int, Ack] = field(default_factory=dict)
    changed: tuple[int, bytes] = (0, b"")
    _noticed: int = 0
    _declined: int = 0
    _declined_since: float = 0.0

    def credit(self, least: int) -> Received | None:
        """Give back the bytes that were taken and no longer wait, when they are at least ``least``."""
        free = self.taken - self.queued - (0 if self.turn and not self.landing else self.joiner.held)
        if free - self._noticed < least:
            return None
        self._noticed = free
        return Received(free)

    @property
    def outstanding(self) -> int:
        """Bytes that were received and not given back."""
        return self.taken - self._noticed

    def ack(self, ack: Ack) -> Ack:
        """Remember what is said to it, of as many streams as an actor may have open."""
        self.acked[ack.stream] = ack
        if len(self.acked) > STREAMS_PER_ACTOR:
            del self.acked[min(self.acked)]
        return ack

    def may_decline(self, now: float, period_s: float) -> bool:
        """Whether it is told of one more message that was not accepted: of ``MOST_DECLINED`` in each ``period_s`` (s)."""
        if now - self._declined_since >= period_s:
            self._declined, self._declined_since = 0, now
        self._declined += 1
        return self._declined <= MOST_DECLINED

    def allow(self, allowance: Allowance, least: int) -> bool:
        """Take a new allowance; false, and nothing changes, when it grants fewer than ``least`` more steps and is not final."""
        grown = allowance.granted - self.allowance.granted
        if allowance == self.allowance or not (grown >= least or allowance.final):
            return False
        self.allowance = allowance
        return True
