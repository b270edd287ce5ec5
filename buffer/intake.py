"""The intake: rows of actors and what they say about them later, queued for the pool's thread and answered when it is done."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.buffer.board import Board
from headrace.buffer.client import Client
from headrace.buffer.pacing import Pacing
from headrace.buffer.status import Watch
from headrace.buffer.worker import Amend, Done, Insert
from headrace.common.errors import WireError
from headrace.common.wire import messages as m
from headrace.common.wire.answers import Out, declined
from headrace.common.wire.codec import Frame, encode, parse_label
from headrace.common.wire.compression import NONE
from headrace.common.wire.deflate import travelled
from headrace.common.wire.fields import printable
from headrace.common.wire.fleet import name_of
from headrace.common.wire.refusals import Refusals


class Intake:
    """Blocks and labels; acks are gathered over a round of work, since they are cumulative.

    Attributes:
        rejected: rows that may not enter the pool.
    """

    def __init__(self, board: Board, pacing: Pacing, watch: Watch) -> None:
        self._board, self._pacing, self._watch = board, pacing, watch
        self.rejected = Refusals("rows")
        self._acks: dict[tuple[bytes, int], int] = {}

    def block(self, client: Client, head: m.BlockHead, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take a block, whose frames are looked at where the pool is; raises :class:`WireError`."""
        if head.rows < 1 or head.seq < 1 or head.seq + head.rows >= 1 << 63:
            raise WireError("malformed", f"block of {head.rows} rows at seq {head.seq}")
        if client.session.compression != NONE:
            self._board.traffic["rows"].add(sum(map(len, frames)), travelled(frames))
        work = Insert(client.session.peer, client.session.id, head, frames)
        client.queued += work.nbytes
        self._board.work.append(work)
        return []

    def label(self, client: Client, head: m.LabelHead, frames: Sequence[Frame], now: float) -> list[Out]:
        """Take a label; raises :class:`WireError`."""
        spec = self._board.totals.spec
        if spec is None:
            raise WireError("no-pool", "no actor has declared its spec yet")
        work = Amend(client.session.peer, client.session.id, head.number, parse_label(head, frames, spec))
        client.queued += work.nbytes
        self._board.work.append(work)
        return []

    def inserted(self, work: Insert, done: Done) -> list[Out]:
        """Note the ack of a block, and answer for the rows of it that may not enter."""
        who = name_of("actor", work.actor)
        if done.reason:  # neither committed nor passed over, so not acknowledged either
            self._board.refused.add(who, done.reason, done.detail)
            return [(work.peer, [encode(declined(done.reason, done.detail))])]
        stream, last = work.head.stream, work.head.seq + work.head.rows - 1
        self._pacing.accounted(work.actor, done.steps)
        self._watch.cursor(work.actor, stream, last)
        self._acks[work.peer, stream] = max(last, self._acks.get((work.peer, stream), 0))
        if done.unwanted:
            self._board.refused.add(who, f"priority-{done.unwanted}")
        rejects = []
        for r in done.refused:
            self.rejected.add(who, r.reason, r.detail, r.last - r.first + 1)
            rejects.append(m.Reject(stream, r.first, r.last, r.reason[:32], printable(r.detail)[:256]))
        return [(work.peer, [encode(reject)]) for reject in rejects]

    def amended(self, work: Amend, done: Done) -> list[Out]:
        """Answer a label."""
        if done.reason:
            self._board.refused.add(name_of("actor", work.actor), f"label-{done.reason}", done.detail)
        labelled = m.Labelled(work.number, done.labelled.rows, done.labelled.gone, done.reason, printable(done.detail))
        return [(work.peer, [encode(labelled)])]

    def acks(self) -> list[tuple[bytes, m.Ack]]:
        """The acks of this round by peer, to be said behind everything else that it answers."""
        acks, self._acks = self._acks, {}
        return [(peer, m.Ack(stream, seq)) for (peer, stream), seq in acks.items()]
