"""Troubles that a host of a run is put through, and when the run's rates are back after each."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from campaign.cluster import Cluster

REBOOT, CUT, SLOW, HALF_OPEN, EMPTIED = "reboot", "cut", "slow", "half-open", "emptied"
SLOW_BITS_S = 2e6
SHARE = 0.9  # of the rates before that count as back
Point = tuple[float, int, int]  # time (s), env steps, updates
RATES = ("env_steps", "updates")


@dataclass(frozen=True)
class Trouble:
    """What happens to a host.

    Attributes:
        kind: ``reboot``: all of its processes end, and no connection of theirs says so, then it starts them again.
            ``emptied``: as well, and its disk is empty then. ``cut``: no cable. ``slow``: :data:`SLOW_BITS_S` in each
            direction. ``half-open``: what it sends arrives, what it is sent does not.
        host: by name.
        seconds: for how long.
    """

    kind: str
    host: str
    seconds: float

    @property
    def is_reboot(self) -> bool:
        """Whether all of its processes end."""
        return self.kind in (REBOOT, EMPTIED)

    @contextlib.contextmanager
    def happens(self, cluster: Cluster) -> Iterator[None]:
        """While the block runs."""
        host = cluster.lan.hosts[self.host]
        if self.is_reboot:
            cluster.crash(self.host)
            if self.kind == EMPTIED:
                shutil.rmtree(cluster.directory(self.host) / "runs")
            yield
            cluster.boot(self.host)
        elif self.kind == CUT:
            host.cable(whole=False)
            yield
            host.cable(whole=True)
        elif self.kind == SLOW:
            with host.slow(SLOW_BITS_S):
                yield
        else:
            with host.drops("everything"):
                yield


def rates(points: Sequence[Point], start: float, end: float) -> tuple[float, float]:
    """Env steps and updates a second from ``start`` to ``end``, linear between points."""
    times, *counts = np.array(points, float).T
    steps, updates = (float(np.diff(np.interp((start, end), times, count))[0]) / (end - start) for count in counts)
    return steps, updates


def back_after(points: Sequence[Point], since: float, before: tuple[float, float], window_s: float) -> list[float | None]:
    """Of env steps and of updates: how long after ``since`` they come as fast as before, to a tenth, and stay so.

    So fast they are in the window that begins there, and from there to the last point: what was under way when the trouble
    began may pass for a moment, and is no return.

    Args:
        points: counts by time, until now.
        since: when the trouble began, in the time of the points.
        before: a second.
        window_s: length of the window, in which they may lie.
    """
    times, *counts = np.array(points, float).T
    starts = times[(times >= since) & (times <= times[-1] - window_s)]
    out: list[float | None] = []
    for count, rate in zip(counts, before, strict=True):
        done = np.interp(starts, times, count)
        soon = (np.interp(starts + window_s, times, count) - done) / window_s
        lasting = (count[-1] - done) / (times[-1] - starts)
        fast = starts[np.minimum(soon, lasting) >= SHARE * rate]
        out.append(round(float(fast[0]) - since, 2) if fast.size else None)
    return out
