"""What one learner has asked for in its session, and how much of it is on the way or delivered."""

from __future__ import annotations

from headrace.buffer.config import MAX_BATCH
from headrace.buffer.drawing import Again, Draw, Grant
from headrace.common.errors import WireError
from headrace.common.specs import TransitionSpec
from headrace.common.staging import batch_nbytes
from headrace.common.wire import messages as m
from headrace.common.wire.batches import MOST_AHEAD

ROUND_BYTES = 8 << 20  # gathered at most before blocks that wait are committed


class Demand:
    """Counts batches, or updates alone, of one session; bounds what a peer can make the buffer do.

    Attributes:
        claims: whether updates are asked for without rows.
    """

    def __init__(self) -> None:
        self.drawing = 0
        self._wanted = self._delivered = self._redrawing = 0
        self.batch_size = 0
        self._statistics = self._mapped = self.claims = False

    def ask(self, draw: m.Draw) -> None:
        """Take a new demand; raises :class:`WireError` when it is beyond the bounds."""
        if not 1 <= draw.batch_size <= MAX_BATCH or draw.wanted > self._delivered + MOST_AHEAD:
            raise WireError("malformed", f"draw of {draw.wanted - self._delivered} batches of {draw.batch_size}")
        self._wanted, self.batch_size = draw.wanted, draw.batch_size
        self._statistics, self._mapped = draw.statistics, draw.mapped

    def claim(self, claim: m.Claim) -> None:
        """Take a new demand for updates whose rows come from elsewhere; raises as :meth:`ask` does."""
        self.ask(m.Draw(claim.wanted, claim.batch_size))
        self.claims = True

    def grant(self, peer: bytes, allowed: int, *, offline: bool) -> Grant | None:
        """The grant of what is claimed, of at most ``allowed`` updates."""
        updates = min(self._wanted - self._delivered - self.drawing, allowed)
        if updates <= 0:
            return None
        self.drawing += updates
        return Grant(peer, updates, offline)

    def again(self, peer: bytes, redraw: m.Redraw) -> Again:
        """The work that a redraw asks for; raises :class:`WireError` when it is beyond the bounds."""
        if not 1 <= redraw.rows <= MAX_BATCH or self._redrawing >= MOST_AHEAD:
            raise WireError("malformed", f"redraw of {redraw.rows} rows, {self._redrawing} redraws before it")
        self._redrawing += 1
        return Again(peer, redraw.ticket, redraw.rows, redraw.gather)

    def work(self, peer: bytes, allowed: int, rows: int, spec: TransitionSpec | None, *, offline: bool) -> Draw | None:
        """The draw that a pool of ``rows`` rows can make now, of at most ``allowed`` batches."""
        batches = min(self._wanted - self._delivered - self.drawing, allowed)
        if batches <= 0 or rows < self.batch_size or spec is None:
            return None
        if not self._mapped:
            batches = min(batches, max(1, ROUND_BYTES // batch_nbytes(spec, self.batch_size)))
        self.drawing += batches
        return Draw(peer, batches, self.batch_size, self._statistics, self._mapped, offline)

    def done(self, work: Draw | Again | Grant, batches: int) -> None:
        """Account for finished work that delivered ``batches``, or as many updates."""
        if isinstance(work, Again):
            self._redrawing -= 1
            return
        self.drawing -= work.batches if isinstance(work, Draw) else work.updates
        self._delivered += batches

    def get_state(self) -> dict[str, int]:
        """The counts."""
        return {"wanted": self._wanted, "delivered": self._delivered, "drawing": self.drawing, "redrawing": self._redrawing}

    def set_state(self, state: dict[str, int]) -> None:
        """Restore :meth:`get_state`."""
        self._wanted, self._delivered = state["wanted"], state["delivered"]
        self.drawing, self._redrawing = state["drawing"], state["redrawing"]

    def check_valid(self) -> tuple[bool, str]:
        """Whether no count is negative."""
        bad = [name for name, count in self.get_state().items() if count < 0]
        return not bad, f"negative counts: {bad}" if bad else ""
