"""Rates over a sliding window and process memory, for status and logs."""

from __future__ import annotations

from collections import deque
from pathlib import Path


class RateWindow:
    """Rate of a counter over the last ``seconds``."""

    def __init__(self, seconds: float = 10.0, resolution_s: float = 0.25) -> None:
        self._seconds, self._resolution_s = seconds, resolution_s
        self._points: deque[tuple[float, int]] = deque()

    def add(self, total: int, now: float) -> None:
        """Note the counter's total at ``now`` (s)."""
        if self._points and now - self._points[-1][0] < self._resolution_s:
            return
        self._points.append((now, total))
        while len(self._points) > 2 and now - self._points[0][0] > self._seconds:
            self._points.popleft()

    def per_second(self) -> float:
        """Increments per second over the window; 0 before two points."""
        if len(self._points) < 2:
            return 0.0
        (t0, n0), (t1, n1) = self._points[0], self._points[-1]
        return max(0.0, (n1 - n0) / (t1 - t0)) if t1 > t0 else 0.0


def process_memory() -> dict[str, int]:
    """Resident, peak and anonymous bytes of this process (empty where /proc is absent)."""
    names = {"VmRSS": "rss_bytes", "VmHWM": "peak_bytes", "RssAnon": "anonymous_bytes"}
    out: dict[str, int] = {}
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in names:
                out[names[key]] = int(value.split()[0]) * 1024
    except OSError:
        return {}
    return out
