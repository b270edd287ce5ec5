"""A further shard as a client of the home shard: what passes between its link's thread and its buffer's loop.

The loop says what the shard holds (:meth:`Satellite.tell`) and takes what came (:meth:`Satellite.take`). A loan is counted in
env steps that are committed in the shard's own pool, so neither side has to remember a session: at each hello the shard says
how far the loan went, and the home shard goes on from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from headrace.buffer.lent import LentPacing, Loan
from headrace.common.specs import TransitionSpec
from headrace.common.weights import Raw, Version
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Frame, Parts, encode
from headrace.common.wire.weight_fetch import WeightFetch

NOTHING = m.Holdings("", 0, 0)


@dataclass(frozen=True)
class News:
    """What came of the home shard since the last look: the present loan, and, once, its spec and newer weights."""

    loan: Loan
    spec: TransitionSpec | None = None
    weights: tuple[Version, Raw] | None = None


class Satellite:
    """The role of a further shard on its link.

    Args:
        part_bytes: length of one range of weights.
        version: of the weights on its own shelf.
        announce: called by the link's thread when there is news.
    """

    def __init__(self, part_bytes: int, version: Version) -> None:
        self._fetch = WeightFetch(part_bytes)
        self._fetch.set_state({"have": version})
        self._lock = threading.Lock()
        self.announce: Callable[[], None] = lambda: None
        self.report: dict[str, Any] = {}  # what heartbeats tell
        self._holdings, self._said = NOTHING, NOTHING
        self._granted = self._returned = 0
        self._loan = Loan()
        self._spec: TransitionSpec | None = None
        self._weights: tuple[Version, Raw] | None = None
        self._live = False

    # --- loop -------------------------------------------------------------------------------------------------------

    def tell(self, pool: str, rows: int, pacing: LentPacing, *, paused: bool) -> bool:
        """What the shard holds now; whether the link should be woken to say it.

        A loan that nobody can use goes back: when no simulator is left, others of the run may need it.
        """
        steps, under_way, simulators = pacing.env_steps, pacing.under_way, pacing.simulators
        with self._lock:
            unused = self._granted - self._returned - steps - under_way
            if self._live and not simulators and not pacing.absent and unused > 0:
                self._returned += unused
                self._loan = replace(self._loan, limit=self._loan.limit - unused)
            self._holdings = m.Holdings(pool, steps, rows, self._returned, under_way, simulators, pacing.reserve, paused)
            return self._live and self._holdings != self._said

    def take(self) -> News:
        """What came since the last look."""
        with self._lock:
            news = News(self._loan, self._spec, self._weights)
            self._spec = self._weights = None
        return news

    # --- link's thread ----------------------------------------------------------------------------------------------

    def welcomed(self, welcome: m.Welcome) -> None:
        """The home shard knows this one, and how far its loan went."""
        with self._lock:
            self._live, self._said = True, NOTHING
            self._fetch.restart()
            self._spec = TransitionSpec.from_dict(welcome.spec)
        self.announce()

    def received(self, message: m.Message, frames: list[Frame]) -> None:
        """A message of the home shard."""
        with self._lock:
            if isinstance(message, m.State):
                self._fetch.announced(message)
                self._granted = max(self._granted, message.granted)
                limit, random = self._granted - self._returned, message.random - self._returned
                self._loan = Loan(limit, max(0, random), message.final, message.phase, message.env_steps)
            elif isinstance(message, m.WeightsPart) and frames:
                found = self._fetch.take_packed(message, frames[0])
                if found is not None:
                    self._weights = found[1].version, found[0]
        self.announce()

    def outgoing(self, room: int) -> Iterable[Parts]:
        """What the shard holds, where that has changed, and requests for ranges of weights."""
        with self._lock:
            out: list[Parts] = [[encode(get)] for get in self._fetch.requests()]
            if self._holdings != self._said:
                self._said = self._holdings
                out.append([encode(self._said)])
        return out

    def pulse(self) -> m.Message:
        """The heartbeat."""
        return m.Pulse(report=self.report)

    def position(self) -> tuple[int, int]:
        """How far the loan goes, in committed env steps of the shard's pool, and how many of them are not committed yet."""
        with self._lock:
            self._live = False
            steps = self._holdings.env_steps
            limit = max(self._granted - self._returned, steps + self._holdings.under_way)
            self._granted, self._returned = limit, 0
            self._loan = replace(self._loan, limit=limit)
            return limit, limit - steps
