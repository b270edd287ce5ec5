"""People for tests: an environment that somebody takes over at given steps, as wrappers of SERL and RLinf do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np


class TakenOver(gym.Wrapper[Any, Any, Any, Any]):
    """Executes a human's action in the steps ``at`` of each episode, and says so in info; its step t acts ``(t + 1) / -64``.

    Args:
        env: the environment.
        at: steps of each episode.
        flag: whether info has an ``intervene_flag`` too, in every step, as some wrappers do; the action is then given always.
        shape: of the action that info holds; none: the action space's.
    """

    def __init__(self, env: gym.Env[Any, Any], at: Sequence[int] = (), flag: bool = False, shape: Any = None) -> None:
        super().__init__(env)
        self._at, self._flag, self._shape, self._t = frozenset(at), flag, shape, 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._t = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        human = self._t in self._at
        taken = np.full(np.shape(action), human_number(self._t)) if human else np.asarray(action)
        obs, reward, terminated, truncated, info = self.env.step(taken)
        self._t += 1
        info["is_intervention"] = False  # of a stage that knows nothing of people
        if human or self._flag:
            info["intervene_action"] = np.resize(taken, self._shape or np.shape(taken))
        if self._flag:
            info["intervene_flag"] = np.array([human])
        return obs, reward, terminated, truncated, info


def human_number(t: int) -> float:
    """What a human's action of step ``t`` says in every dimension."""
    return (t + 1) / -64
