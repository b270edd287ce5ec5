"""Refusals: what was not accepted, by reason and by peer, and a line in the log about it now and then."""

from __future__ import annotations

import logging
from collections import Counter

from headrace.common.throttle import Throttle
from headrace.common.wire.fields import printable

LOG = logging.getLogger(__name__)
MOST_PEERS = 64  # that are counted apart
MOST_TOLD = 4  # of them in one line
STRANGERS = "strangers"  # who has no session has no name either
OTHERS = "others"


class Refusals:
    """Counts what one buffer does not accept.

    Args:
        what: is counted, in words.

    Attributes:
        by_reason: how many, by reason; reasons are words of ours, so there are few.
        by_peer: the same for each of the first peers of whom something was refused; all further ones are ``others``.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._throttle = Throttle()
        self._new = 0
        self._untold: Counter[str] = Counter()
        self._detail = ""
        self.by_reason: Counter[str] = Counter()
        self.by_peer: dict[str, Counter[str]] = {}

    def add(self, peer: str, reason: str, detail: str = "", n: int = 1) -> None:
        """``n`` of a peer were not accepted."""
        if peer not in self.by_peer and len(self.by_peer) >= MOST_PEERS:
            peer = OTHERS
        self.by_reason[reason] += n
        self.by_peer.setdefault(peer, Counter())[reason] += n
        self._new += n
        self._untold[f"{peer} {reason}"] += n
        self._detail = detail or reason

    def tick(self, now: float) -> None:
        """Tell the log, one line in ten seconds at most."""
        n = self._throttle.count(now, self._new)
        self._new = 0
        if n:
            most = ", ".join(f"{who} {count}" for who, count in self._untold.most_common(MOST_TOLD))
            LOG.warning("%d %s refused: %s; the last one: %s", n, self._what, most, printable(self._detail)[:256])
            self._untold.clear()
