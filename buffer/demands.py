"""The demands of all learners: what the pool's thread is to draw for them as far as pacing allows, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from headrace.buffer.board import Board
from headrace.buffer.client import Client
from headrace.buffer.drawing import Again, Draw, Grant
from headrace.buffer.pacing import Pacing
from headrace.buffer.satellites import Satellites
from headrace.buffer.worker import Done, Update
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out, declined
from headrace.common.wire.batches import MOST_AHEAD, parse_rate
from headrace.common.wire.codec import Frame, encode
from headrace.common.wire.compression import NONE
from headrace.common.wire.fleet import LEARNER
from headrace.common.wire.fragments import size_of
from headrace.common.wire.refusals import OTHERS


class Demands:
    """Draws, redraws and ratings of learners."""

    def __init__(self, board: Board, pacing: Pacing, satellites: Satellites) -> None:
        self._board, self._pacing, self._satellites = board, pacing, satellites
        self._batch_size = 0  # also of a learner that has left: whether its batches can be drawn decides over the end
        self._later: list[Again] = []  # too few rows are live now
        self._short = self._paused = False  # the last draw found too few rows; and it is not the time to try again

    def ask(self, client: Client, draw: m.Draw | m.Redraw, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take a demand; raises :class:`WireError`."""
        if isinstance(draw, m.Draw):
            client.demand.ask(draw)
        else:
            again = client.demand.again(client.session.peer, draw)
            self._board.work.append(replace(again, compressed=client.session.compression != NONE and draw.gather))
        return []

    def claim(self, client: Client, claim: m.Claim, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take a demand for updates alone; raises :class:`WireError`."""
        client.demand.claim(claim)
        return []

    def rate(self, client: Client, head: m.Rate, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take ratings of drawn rows; raises :class:`WireError`."""
        work = Update(client.session.peer, head.pool_epoch, *parse_rate(head, frames))
        client.queued += work.nbytes
        self._board.work.append(work)
        return []

    def draws(self, clients: Collection[Client]) -> list[Draw | Grant]:
        """The draws and grants that pacing allows now."""
        totals = self._board.totals
        out: list[Draw | Grant] = []
        self._batch_size = max((c.demand.batch_size for c in clients), default=0) or self._batch_size
        self._pacing.drawable = not self._short and totals.drawable + self._satellites.rows >= self._batch_size
        allowed, offline = self._pacing.updates_allowed(), self._pacing.offline
        allowed -= sum(c.demand.drawing for c in clients if _is_granted(c))  # the phase ends only when they are granted
        for client in () if self._paused else (client for client in clients if not client.silent):
            granted = _is_granted(client)
            if client.demand.claims:
                grant = client.demand.grant(client.session.peer, allowed * self._pacing.drawable, offline=offline)
                if grant is not None:
                    out.append(grant)
                    allowed -= grant.updates
                continue
            most = allowed if granted else MOST_AHEAD * self._pacing.begun
            draw = client.demand.work(client.session.peer, most, totals.drawable, totals.spec, offline=offline)
            if draw is not None:
                packed = client.session.compression != NONE and not draw.mapped
                out.append(replace(draw, compressed=packed, granted=granted))
                allowed -= draw.batches * granted
        return out

    def drawn(self, client: Client | None, work: Draw | Again | Grant, done: Done) -> list[Out]:
        """What a draw has brought; ``client`` is none when it has left meanwhile."""
        if client is not None and done.reason and isinstance(work, Again):
            self._later.append(work)
            return []
        if isinstance(work, Draw):
            self._short = self._paused = bool(done.reason)
        if client is not None:
            client.demand.done(work, done.batches)
        if not isinstance(work, Grant) and work.compressed:
            self._board.traffic["batches"].add(done.plain_bytes, sum(map(size_of, done.parts)))
        return [(work.peer, parts) for parts in done.parts]

    def rated(self, client: Client | None, work: Update, done: Done) -> list[Out]:
        """Answer ratings that were refused; ``client`` is none when it has left meanwhile."""
        if not done.reason:
            return []
        self._board.refused.add(OTHERS if client is None else client.session.name, done.reason, done.detail)
        return [(work.peer, [encode(declined(done.reason, done.detail))])]

    def tick(self) -> None:
        """Try again what found too few rows."""
        self._board.work.extend(self._later)
        self._later.clear()
        self._paused = False


def _is_granted(client: Client) -> bool:
    """Whether what this client draws are updates; a further rank's batches are for updates that the learner is granted."""
    return client.session.role == LEARNER
