"""Robots for tests: one whose observations prove themselves, and which fails as told."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from headrace.actor.robot import Command, Observation, RobotState
from headrace.common.clock import MonotonicClock
from headrace.common.specs import OUTCOME_SUCCESS, ActionSpec, ObsSpec


class CountingRobot:
    """Observes (episode, t, the last executed action); the step from t to t + 1 has reward t.

    Args:
        length: steps of an episode; odd episodes succeed.
        fail: where it raises: ``make``, ``connect``, ``reset``, ``observe`` (once, at t = 2) or nowhere.
        reset_s: time that a reset takes.
        dims: A.
    """

    def __init__(self, length: int = 5, fail: str = "", reset_s: float = 0.0, dims: int = 1) -> None:
        self.obs = (ObsSpec("stamp", (3,), "<f4"),)
        self.action = ActionSpec((dims,), (-1.0,) * dims, (1.0,) * dims)
        self._length, self._fail, self._reset_s = length, fail, reset_s
        self._episode, self._t, self._last = -1, 0, np.zeros(dims, np.float32)
        self._clock = MonotonicClock()
        self._break("make")

    def connect(self) -> None:
        self._break("connect")

    def reset(self, episode: int, seed: int) -> None:
        self._break("reset")
        time.sleep(self._reset_s)
        self._episode, self._t = episode, 0

    def observe(self) -> Observation:
        if self._t == 2 and self._fail == "observe":
            self._fail = ""
            raise OSError("no picture")
        ended = self._t == self._length
        outcome = OUTCOME_SUCCESS if ended and self._episode % 2 else 0
        stamp = np.array([self._episode, self._t, self._last[0]], np.float32)
        return Observation({"stamp": stamp}, {}, float(self._t - 1), ended and not self._episode % 2, ended, outcome)

    def act(self, command: Command) -> bool:
        if self._clock.now() > command.deadline:
            return False
        if command.episode >= 0:
            self._t += 1
            self._last = command.action
        return True

    def stop(self) -> None:
        self._t = 0

    def state(self) -> RobotState:
        return RobotState(self._last.copy())

    def close(self) -> None:
        pass

    def _break(self, where: str) -> None:
        if self._fail == where:
            raise OSError(f"scripted failure in {where}")


def make(**kwargs: Any) -> CountingRobot:
    """``env.id: helpers.robots:make``."""
    return CountingRobot(**kwargs)
