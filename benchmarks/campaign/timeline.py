"""What a running run tells about itself over time, asked from outside a few times a second."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer.query import Observer
from headrace.common.errors import HeadraceError

ASK_EVERY_S = 0.1
ANSWER_S = 0.3


class Timeline:
    """Asks one run for its status; a look costs the buffer well under a millisecond.

    Args:
        run_dir: the run directory, which need not exist yet.

    Attributes:
        points: (seconds since the epoch, env steps, updates) of each answer.
        done: when the job was first told to be done; none before.
        evaluations: (env steps, mean return) of each evaluation.
        status: the newest answer; empty before the first.
        asked: monotonic time at which it was asked for.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._observer: Observer | None = None
        self.asked = 0.0
        self.points: list[tuple[float, int, int]] = []
        self.done: float | None = None
        self.evaluations: dict[int, float] = {}
        self.status: Mapping[str, Any] = {}

    def watch(self, pid: int) -> None:
        """Ask, if it is time to; called again and again while the run goes on."""
        now = time.monotonic()
        if now - self.asked < ASK_EVERY_S:
            return
        self.asked = now
        status = self._ask()
        if status is None:
            return
        self.status = status
        self.points.append((time.time(), status["env_steps"], status["updates"]))
        self.evaluations.update({e["env_steps"]: e["return_mean"] for e in status["evaluations"]})
        if self.done is None and status["phase"] == "done":
            self.done = self.points[-1][0]

    def close(self) -> None:
        """Leave the buffer."""
        if self._observer is not None:
            self._observer.close()

    def when(self, env_steps: int) -> float | None:
        """Time at which ``env_steps`` were reached, linear between looks; none if they were not."""
        return crossing([(at, steps) for at, steps, _ in self.points], env_steps)

    def updates_at(self, moment: float) -> float:
        """Updates at a time between the first and the last look."""
        times, _, updates = np.asarray(self.points, np.float64).T
        return float(np.interp(moment, times, updates))

    def _ask(self) -> Mapping[str, Any] | None:
        try:
            if self._observer is None:
                self._observer = Observer((self._run_dir / "endpoint").read_text().strip())
            return self._observer.status(ANSWER_S)
        except (FileNotFoundError, HeadraceError):
            return None  # not there yet, or gone already


def crossing(points: list[tuple[float, int]], goal: int) -> float | None:
    """Time at which a rising count reached ``goal``, linear between points; none if it did not."""
    for (t0, n0), (t1, n1) in itertools.pairwise(points):
        if n0 <= goal <= n1 and n1 > n0:
            return t0 + (t1 - t0) * (goal - n0) / (n1 - n0)
    return None
