"""Refusals: what was not accepted, by reason and by peer, and a line in the log about it now and then."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict

from headrace.common.throttle import Throttle
from headrace.common.wire.fields import printable

LOG = logging.getLogger(__name__)
MOST_PEERS = 64  # that are counted apart
MOST_TOLD = 4  # of them in one line
LINE_S = 10.0  # between two lines, whatever they tell
STRANGERS = "strangers"  # who has no session has no name either
OTHERS = "others"


class Refusals:
    """Counts what one buffer does not accept.

    The log tells of each reason at once and then ever more rarely, in one line for all that are due and at most one line in
    ten seconds: so what goes on for ever fills no disk, and hides nothing new.

    Args:
        what: is counted, in words.

    Attributes:
        by_reason: how many, by reason; reasons are words of ours, so there are few.
        by_peer: the same for each of the first peers of whom something was refused; all further ones are ``others``.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._throttles: dict[str, Throttle] = defaultdict(Throttle)
        self._told_at = -math.inf
        self._new: Counter[str] = Counter()
        self._untold: dict[str, Counter[str]] = defaultdict(Counter)  # reason -> of whom
        self._details: dict[str, str] = {}
        self.by_reason: Counter[str] = Counter()
        self.by_peer: dict[str, Counter[str]] = {}

    def add(self, peer: str, reason: str, detail: str = "", n: int = 1) -> None:
        """``n`` of a peer were not accepted."""
        if peer not in self.by_peer and len(self.by_peer) >= MOST_PEERS:
            peer = OTHERS
        self.by_reason[reason] += n
        self.by_peer.setdefault(peer, Counter())[reason] += n
        self._new[reason] += n
        self._untold[reason][peer] += n
        self._details.pop(reason, None)
        self._details[reason] = detail or reason  # the last one is the newest

    def tick(self, now: float) -> None:
        """Tell the log what is due."""
        if not self._untold or now - self._told_at < LINE_S:
            return
        due = {reason: n for reason in self._untold if (n := self._throttles[reason].count(now, self._new.pop(reason, 0)))}
        if not due:
            return
        self._told_at = now
        told = Counter({f"{peer} {reason}": n for reason in due for peer, n in self._untold.pop(reason).items()})
        most = ", ".join(f"{who} {count}" for who, count in told.most_common(MOST_TOLD))
        *_, last = (detail for reason, detail in self._details.items() if reason in due)
        LOG.warning("%d %s refused: %s; the last one: %s", sum(due.values()), self._what, most, printable(last)[:256])
