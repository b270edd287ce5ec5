"""The absence: what the log is told of a session that is not there yet, that was lost, and that is back. No I/O."""

from __future__ import annotations

from headrace.common.throttle import Throttle
from headrace.common.wire.session import ClientSession, Phase

FIRST_S, AGAIN_S, MINUTE_S, LATER_S = 0.5, 10.0, 60.0, 600.0  # of waiting, when the log is told of it; then every so often
MOST_REASONS = 8  # that are told at once in one wait: whoever is dialled may say as many as it likes


class Absence:
    """Says now and then how a session stands, a line at a time.

    It is told when it begins. While it is waited for, each reason is told at once when it is new, and what goes on after 10 s,
    after a minute, and then every ten minutes. A link that comes and goes is told of ever more rarely, at last every ten
    minutes; a loss of 10 s or more always.

    Args:
        session: that is looked at.
        endpoint: where it is dialled.
    """

    def __init__(self, session: ClientSession, endpoint: str) -> None:
        self._session, self._endpoint = session, endpoint
        self._losses = Throttle(AGAIN_S, LATER_S)
        self._since: float | None = None  # when the wait began; none while there is a session, and before the first look
        self._due_s = FIRST_S
        self._reasons: set[str] = set()
        self._live = self._had = self._told = False

    def look(self, now: float) -> str:
        """What to tell now; mostly nothing."""
        phase = self._session.phase
        if phase is Phase.LIVE:
            return "" if self._live else self._begin(now)
        if phase is Phase.ENDED:  # whoever asks for the session raises why
            return ""
        if self._live:
            return self._lose(now)
        if self._since is None:
            self._since = now
        return self._wait(now - self._since)

    def _begin(self, now: float) -> str:
        away_s = now - (now if self._since is None else self._since)
        said = f"has a session with {self._endpoint} as {self._session.hello.id!r}"
        if self._had:
            said = f"is back at {self._endpoint} as {self._session.hello.id!r} after {away_s:.1f} s" if self._told else ""
        self._live = self._had = True
        return said

    def _lose(self, now: float) -> str:
        self._live, self._since, self._due_s = False, self._session.heard_at, AGAIN_S
        self._reasons = {self._session.waiting}
        self._told = bool(self._losses.count(now))
        return f"has lost its session: {self._session.waiting}" if self._told else ""

    def _wait(self, waited_s: float) -> str:
        reason = self._session.waiting
        new = waited_s >= FIRST_S and reason not in self._reasons and len(self._reasons) < MOST_REASONS
        due = waited_s >= self._due_s
        if not (new or due) or (self._had and not self._told and waited_s < AGAIN_S):
            return ""
        self._reasons.add(reason)
        self._told = True
        while self._due_s <= waited_s:
            self._due_s = next((s for s in (AGAIN_S, MINUTE_S) if s > self._due_s), self._due_s + LATER_S)
        return f"waiting for {waited_s:.0f} s: {self._session.why}" if waited_s >= AGAIN_S else f"waiting: {reason}"
