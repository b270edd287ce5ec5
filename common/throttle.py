"""The throttle: how often something may be said that happens as often as a stranger likes."""

from __future__ import annotations

import math


class Throttle:
    """Counts what happens, and lets it be told of once in ``period_s``.

    Args:
        period_s: least time between two times.
    """

    def __init__(self, period_s: float = 10.0) -> None:
        self._period_s = period_s
        self._told_at = -math.inf
        self._untold = 0

    def count(self, now: float, n: int = 1) -> int:
        """It happened ``n`` more times; how often since it was last told of, or 0 while it is too early to tell again."""
        self._untold += n
        if not self._untold or now - self._told_at < self._period_s:
            return 0
        untold, self._untold, self._told_at = self._untold, 0, now
        return untold
