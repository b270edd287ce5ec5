"""Small environments with one property each: the seed of the episode, values that are not finite, odd spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class SeedEnv(gym.Env[Any, Any]):
    """One-step episodes whose observation is the seed of their reset."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Dict({"seed": gym.spaces.Box(-1, 1 << 31, (), np.int64)})
        self.action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._seed = -1 if seed is None else seed
        return {"seed": np.array(self._seed)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {"seed": np.array(self._seed)}, 0.0, False, True, {}


class NanEnv(gym.Env[Any, Any]):
    """Observations beyond float32 and a reward that is not a number."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([1e300, -np.inf]), float("nan"), False, False, {}


class SpaceEnv(gym.Env[Any, Any]):
    """Has the given spaces and does nothing."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = observation_space or gym.spaces.Box(-1, 1, (2,))
        self.action_space = action_space or gym.spaces.Box(-1, 1, (1,))


def make() -> SeedEnv:
    return SeedEnv()


def make_nan() -> NanEnv:
    return NanEnv()


def make_space(**kwargs: Any) -> SpaceEnv:
    return SpaceEnv(**kwargs)
