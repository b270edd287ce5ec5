"""A fake human, who stands by a fake arm: takes over by chance or where the policy goes wrong, and drives the hand to the goal.

For dry runs, demonstrations and tests without people. It sees what no policy sees, the goal itself, as people see the scene.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.actor.fake_arm import FakeArm, hand_of
from headrace.actor.robot import Observation, Robot
from headrace.actor.teleop import NOBODY, Reading
from headrace.common.errors import EnvError
from headrace.common.specs import ActionSpec

Array = np.ndarray[Any, Any]
NUDGE = 1e-4  # rad, of the slope that is measured
DAMPING = 0.1  # of the least squares, so that no joint runs where the hand cannot follow


class FakeHuman:
    """A :class:`headrace.actor.teleop.Teleop` for :class:`headrace.actor.fake_arm.FakeArm`.

    Args:
        action: the arm's commands.
        chance: probability, in each period in which the policy has the arm, of taking it over.
        patience: periods in which the hand has come no nearer to the goal than ever before in the episode, after which the
            human takes over; 0 never.
        periods: how long the human keeps the arm, at most; none: to the end of the episode.
        gain: share of the way to the goal that the hand is to go in a period.
        step: largest change of a joint in a period (rad).
        noise: standard deviation of what the human does to each joint in a period (rad).
        seed: of chance and noise.
    """

    gives = "displacement"

    def __init__(
        self,
        action: ActionSpec,
        chance: float = 0.0,
        patience: int = 20,
        periods: int | None = 20,
        gain: float = 0.3,
        step: float = 0.1,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._chance, self._patience, self._periods = chance, patience, periods
        self._gain, self._step, self._noise = gain, step, noise
        self._rng = np.random.default_rng(seed)
        self._arm: FakeArm | None = None
        self._goal: Array = np.full(3, math.nan)
        self._left = 0.0  # periods that the human keeps the arm
        self._nearest, self._waited = math.inf, 0

    def connect(self, robot: Robot) -> None:
        """Stand by the arm."""
        if not isinstance(robot, FakeArm):
            raise EnvError(f"fake human: {type(robot).__name__} is no fake arm; another device must drive it")
        self._arm = robot

    def read(self, now: float, seen: Observation) -> Reading:
        """What the human wants."""
        arm = self._arm
        if arm is None:
            return NOBODY
        hand = hand_of(arm.joints)
        if not np.array_equal(arm.goal, self._goal):  # the scene was made ready anew
            self._goal, self._left, self._nearest, self._waited = arm.goal.copy(), 0.0, math.inf, 0
        self._watch(float(np.linalg.norm(self._goal - hand)))
        if self._left <= 0:
            return NOBODY
        self._left -= 1
        return Reading(self._drive(arm.joints, hand))

    def close(self) -> None:
        """Nothing."""

    def _watch(self, distance: float) -> None:
        """Decide whether to take over."""
        if self._left > 0:
            return
        nearer = distance < self._nearest
        self._waited = 0 if nearer else self._waited + 1
        self._nearest = min(self._nearest, distance)
        if self._rng.random() < self._chance or 0 < self._patience <= self._waited:
            self._left = math.inf if self._periods is None else self._periods
            self._nearest, self._waited = math.inf, 0

    def _drive(self, joints: Array, hand: Array) -> Array:
        """Changes of the joints that bring the hand on, by damped least squares."""
        nudges = np.eye(len(joints)) * NUDGE
        slope = np.stack([(hand_of(joints + nudge) - hand) / NUDGE for nudge in nudges], axis=1)
        way = self._gain * (self._goal - hand)
        change = slope.T @ np.linalg.solve(slope @ slope.T + DAMPING**2 * np.eye(3), way)
        change = np.clip(change, -self._step, self._step) + self._rng.normal(0, self._noise, len(joints))
        return np.asarray(change, np.float32)
