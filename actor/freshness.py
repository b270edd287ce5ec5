"""Freshness: how old each camera's picture is, and how often in a row the same one came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.actor.robot import Observation
from headrace.common.specs import ObsSpec

Array = np.ndarray[Any, Any]


def cameras_of(obs: tuple[ObsSpec, ...]) -> tuple[str, ...]:
    """The keys that are pictures: uint8, (H, W, C)."""
    return tuple(o.key for o in obs if o.dtype == "|u1" and len(o.shape) == 3)


class Freshness:
    """Watches the pictures of every camera.

    A picture is new when its pixels differ from the last one's and its stamp, if it has one, is later: a camera that hangs
    repeats either. It is as old as its stamp says, and without one as old as its arrival.

    Attributes:
        repeats: camera -> how many times in a row its picture was not new.

    Args:
        obs: what the robot observes.
    """

    def __init__(self, obs: tuple[ObsSpec, ...]) -> None:
        self._cameras = cameras_of(obs)
        self.repeats = dict.fromkeys(self._cameras, 0)
        self._last: dict[str, Array] = {}
        self._taken: dict[str, float] = {}

    def see(self, now: float, observation: Observation) -> None:
        """Take one observation."""
        for key in self._cameras:
            picture, stamp = observation.values[key], observation.stamps.get(key, now)
            if key in self._last and (stamp <= self._taken[key] or np.array_equal(picture, self._last[key])):
                self.repeats[key] += 1
                continue
            self.repeats[key] = 0
            self._last[key], self._taken[key] = np.array(picture), stamp

    def ages(self, now: float) -> Mapping[str, float]:
        """Camera -> age of its newest new picture (s)."""
        return {key: max(0.0, now - taken) for key, taken in self._taken.items()}
