"""The pacer: control periods at absolute times, so that lateness never adds up; arithmetic only."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

KEPT = 4096


class Pacer:
    """Period k begins at ``start + k * period``. A period that is missed whole is left out, never made up for in a burst.

    Attributes:
        due: when the next period begins, monotonic seconds.
        overruns: periods that were left out.

    Args:
        period_s: length of a period.
        start: when the first one begins.
    """

    def __init__(self, period_s: float, start: float) -> None:
        self.period_s, self.due = period_s, start
        self.overruns = 0
        self._late: deque[float] = deque(maxlen=KEPT)

    def begin(self, now: float) -> int:
        """A period begins, at ``now`` >= ``due``; how many before it were left out."""
        missed = max(0, int((now - self.due) / self.period_s))
        self._late.append(max(0.0, now - self.due))
        self.overruns += missed
        self.due += (missed + 1) * self.period_s
        return missed

    def restart(self, now: float) -> None:
        """Begin anew at ``now``, after something that was allowed to take long."""
        self.due = now

    def report(self) -> dict[str, Any]:
        """Overruns, and how late the last periods began: p50 and p99 (ms)."""
        late = np.array(self._late) * 1e3 if self._late else np.zeros(1)
        p50, p99 = np.percentile(late, [50, 99]).round(3).tolist()
        return {"overruns": self.overruns, "jitter_ms_p50": p50, "jitter_ms_p99": p99}
