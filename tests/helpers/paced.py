"""A scripted environment in real time: each step ends with the tick of its period, and a file holds when steps began."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from headrace.launch.chaos.scripted import ScriptedEnv


class PacedEnv(ScriptedEnv):
    """As :class:`ScriptedEnv`, at a fixed rate, whatever goes on beside it.

    Args:
        period_s: between two steps; a step that begins late ends at once.
        ticks: file of its own for each process, PATH-PID, that the times at which steps begin are appended to, <f8, of
            ``time.monotonic``.
    """

    def __init__(self, period_s: float = 0.02, ticks: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._period_s, self._due = period_s, 0.0
        self._ticks = os.open(f"{ticks}-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if ticks else -1

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        begun = time.monotonic()
        if self._ticks >= 0:
            os.write(self._ticks, np.float64(begun).tobytes())
        self._due = max(self._due + self._period_s, begun)
        time.sleep(max(0.0, self._due - time.monotonic()))
        return super().step(action)

    def close(self) -> None:
        if self._ticks >= 0:
            os.close(self._ticks)
            self._ticks = -1
        super().close()


def make(**kwargs: Any) -> PacedEnv:
    """``env.id: helpers.paced:make``."""
    return PacedEnv(**kwargs)


def read_ticks(ticks: Path) -> dict[int, np.ndarray]:
    """Process id -> times at which its steps began, ``(n,)`` <f8."""
    found = {}
    for path in ticks.parent.glob(f"{ticks.name}-*"):
        data = path.read_bytes()
        found[int(path.name.rpartition("-")[2])] = np.frombuffer(data[: len(data) // 8 * 8], "<f8")
    return found
