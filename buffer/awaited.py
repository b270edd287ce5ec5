"""Actors of the buffer before this one that have not come back: while they may, steps are kept for what they have under way."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.buffer.pacing import Pacing


class Awaited:
    """Waits one lease for actors and further shards; who lives has spoken by then.

    Args:
        pacing: is told whether anybody is absent.
        names: of their accounts.
        lease_s: how long, from the first :meth:`tick` on.
    """

    def __init__(self, pacing: Pacing, names: Iterable[str], lease_s: float) -> None:
        self._pacing, self._lease_s = pacing, lease_s
        self._names = set(names)
        self._until: float | None = None

    def expect(self, name: str, now: float) -> None:
        """Wait for somebody who was here until ``now``."""
        self._names.add(name)
        self._until = now + self._lease_s
        self._pacing.absent = True

    def returned(self, name: str) -> None:
        """Who has the account has a session."""
        self._names.discard(name)
        self._pacing.absent = bool(self._names)

    def tick(self, now: float) -> None:
        """Move time on."""
        if self._until is None:
            self._until = now + self._lease_s
        if now >= self._until and self._names:
            self._names.clear()
            self._pacing.absent = False
