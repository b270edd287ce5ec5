"""The robots' quota: how many env steps simulators may still do while a robot is connected.

A capped credit: a robot's step earns ``(1 - share) / share`` steps of simulators, a simulator's step costs one. So in every
stretch of time in which a robot is connected, simulators do at most ``cap`` steps more than the share leaves them, and what a
robot does while no simulator wants to step is not saved up for a burst. Time earns nothing: simulators wait for an idle robot.
"""

from __future__ import annotations

import math
from typing import Any


class Quota:
    """Counts steps while it is active; all counts in env steps.

    Args:
        share: least share of the steps that robots do; 0 grants simulators everything.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._cap = self._credit = math.inf
        self.robots = self.simulators = 0

    @property
    def active(self) -> bool:
        """Whether simulators are limited now."""
        return math.isfinite(self._cap)

    @property
    def credit(self) -> float:
        """Steps that simulators may have under way or begin."""
        return self._credit

    def begin(self, cap: int) -> None:
        """The first robot has joined: simulators start with ``cap`` steps, and never save up more."""
        if self._share > 0:
            self._cap = self._credit = float(cap)

    def end(self) -> None:
        """The last robot has left."""
        self._cap = self._credit = math.inf

    def count(self, steps: int, *, robot: bool) -> None:
        """``steps`` were committed."""
        if not self.active:
            return
        if robot:
            self.robots += steps
            self._credit = min(self._cap, self._credit + steps * (1 - self._share) / self._share)
        else:
            self.simulators += steps
            self._credit -= steps

    @property
    def achieved(self) -> float | None:
        """The robots' share of the steps that were committed while one was connected; none when there were none."""
        steps = self.robots + self.simulators
        return self.robots / steps if steps else None

    def get_state(self) -> dict[str, Any]:
        """Credit and counts."""
        return {"cap": self._cap, "credit": self._credit, "robots": self.robots, "simulators": self.simulators}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore :meth:`get_state`."""
        self._cap, self._credit = state["cap"], state["credit"]
        self.robots, self.simulators = state["robots"], state["simulators"]

    def check_valid(self) -> tuple[bool, str]:
        """Whether no more is saved up than the cap."""
        valid = self._credit <= self._cap
        return valid, "" if valid else f"credit {self._credit} above its cap {self._cap}"
