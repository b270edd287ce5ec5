"""The throttle: how often something may be said that happens as often as a stranger likes, or for ever."""

from __future__ import annotations

import math

MOST_S = 3600.0


class Throttle:
    """Counts what happens, and lets it be told of: at once, and while it goes on ever more rarely.

    So what is told of, such as in a log, is bounded by the hours, however often it happens.

    Args:
        period_s: least time between the first two times; each further wait is twice the one before.
        most_s: the longest wait, and how long it must not happen to be told of at once again.
    """

    def __init__(self, period_s: float = 10.0, most_s: float = MOST_S) -> None:
        self._period_s, self._most_s = period_s, most_s
        self._wait_s = 0.0
        self._told_at = self._last_at = -math.inf
        self._untold = 0

    def count(self, now: float, n: int = 1) -> int:
        """It happened ``n`` more times; how often since it was last told of, or 0 while it is too early to tell again."""
        if n:
            if now - self._last_at >= self._most_s:
                self._wait_s = 0.0
            self._last_at = now
            self._untold += n
        if not self._untold or now - self._told_at < self._wait_s:
            return 0
        self._wait_s = min(max(self._period_s, 2 * self._wait_s), self._most_s)
        untold, self._untold, self._told_at = self._untold, 0, now
        return untold
