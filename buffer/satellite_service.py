"""The decisions of a further shard: those of any buffer, on a loan of the home shard, and what is passed on to that one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headrace.buffer.lent import LentPacing, Loan
from headrace.buffer.satellite import Satellite
from headrace.buffer.service import Service
from headrace.buffer.worker import Done, Shelve, Totals
from headrace.common.wire.answers import Out
from headrace.common.wire.link import Link
from headrace.common.wire.session import Phase

NOBODY = b""  # the home shard's weights are nobody's here who could be answered


class SatelliteService(Service):
    """A service whose run is paced elsewhere.

    Its actors see a buffer like any other. Whoever reads its rows is granted nothing here.

    Args:
        parts: those of :class:`Service`, with :class:`LentPacing`.
        satellite: what passes between this and the link's thread.
        link: to the home shard.
    """

    def __init__(self, *parts: Any, satellite: Satellite, link: Link) -> None:
        self._satellite, self._link = satellite, link
        self._report_at = 0.0
        super().__init__(*parts)

    def begin(self, soon: Callable[[Callable[[float], list[Out]]], None]) -> None:
        """Dial the home shard; ``soon`` has the loop say what answers to its news."""
        self._satellite.announce = lambda: soon(self.heard)
        self._tell()  # what the first hello says
        self._link.start()

    @property
    def _lent(self) -> LentPacing:
        assert isinstance(self.pacing, LentPacing)  # as it was made
        return self.pacing

    @property
    def _loan(self) -> Loan:
        return self._lent.loan

    @property
    def env_steps(self) -> int:
        """Online env steps of the run that are committed, in all shards, as the home shard says it."""
        return max(self._loan.env_steps, self.pacing.env_steps)

    @property
    def phase(self) -> str:
        """That of the run, as the home shard says it; ``waiting`` before it was heard."""
        return "stopping" if self.stopping else self._loan.phase or "waiting"

    @property
    def home(self) -> dict[str, Any] | None:
        """How this shard stands with the home shard."""
        session = self._link.session
        connected = session.phase is Phase.LIVE
        loan = {"limit": self._loan.limit, "under_way": self._lent.under_way, "final": self._loan.final}
        return {"endpoint": self._link.endpoint, "connected": connected, "waiting": session.waiting, **loan}

    def heard(self, now: float) -> list[Out]:
        """There is news of the home shard."""
        news, before = self._satellite.take(), self._loan
        self._lent.hear(news.loan)
        if news.spec is not None and self.totals.spec is None:
            self.reception.declare(news.spec)
        if news.weights is not None:
            self._board.work.append(Shelve(NOBODY, *news.weights))
        out = self._share(now, urgent=not news.loan.final)
        if news.loan.phase != before.phase:  # a pause holds robots
            out += [self._state(c, now) for c in self.reception.clients.values() if c.session.role != "observer"]
        self._tell()
        return self.reception.as_spoken(out)

    def finish(self, done: list[Done], totals: Totals, now: float) -> list[Out]:
        """Answer finished work, and tell the home shard what it came to."""
        out = super().finish(done, totals, now)
        self._tell()
        return [said for said in out if said[0] != NOBODY]

    def tick(self, now: float) -> list[Out]:
        """Move time on; raises what ended the link to the home shard for good."""
        self._link.check()
        out = super().tick(now)
        if now >= self._report_at:
            self._report_at = now + self._network.heartbeat_s  # whose heartbeat it goes with
            self._satellite.report = {
                "rates": self.watch.rates,
                "counters": {k: n for k, n in self.totals.counters.items() if n},
                "actors": len(self.fleet.sessions("actor")),
                "weights": asdict(self.shelf.version),
                "part": self.watch.part(self, now),
            }
        self._tell()
        return out

    def _tell(self) -> None:
        """Say what is here where it is news."""
        totals = self.totals
        if totals.spec is not None and self._link.session.hello.spec is None:
            self._link.declare(totals.spec.to_dict())
        pool = str(totals.info.get("uuid", ""))
        if self._satellite.tell(pool, totals.live, self._lent, paused=bool(self.live.paused_by)):
            self._link.wake()
