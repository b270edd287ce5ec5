"""An env of several tasks, each of whose observations says which one it is of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class TaskEnv(gym.Env[Any, Any]):
    """Task and length of an episode are decided by its seed; observation (task, t); success is an even task.

    Args:
        tasks: how many.
        words: whether info names the task by a text, which is no number.
    """

    def __init__(self, tasks: int = 3, words: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._tasks, self._words = tasks, words
        self._task = self._t = self._length = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._task, self._length, self._t = int(self.np_random.integers(self._tasks)), int(self.np_random.integers(1, 5)), 0
        return self._observe(), {"task": f"task {self._task}" if self._words else self._task}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        ended = self._t == self._length
        return self._observe(), 0.0, ended, False, {"is_success": self._task % 2 == 0, "task": 99}

    def _observe(self) -> Any:
        return np.array([self._task, self._t], np.float32)
