"""A success classifier over a gymnasium environment: reward 1 where success is held, which ends the episode, and else 0."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from headrace.actor.config import EnvConfig
from headrace.actor.gym_spaces import leaves_of
from headrace.actor.success import Judge

JUDGED = "headrace_judged"


class SuccessReward(gym.Wrapper[Any, Any, Any, Any]):
    """Outermost wrapper of an environment whose config names a classifier.

    What the environment itself says of reward and success is not used; that an episode ends is. Info has what the classifier
    says as ``success``, and of each step as ``JUDGED``.

    Args:
        env: the environment.
        config: its config.

    Raises:
        ConfigError: the classifier cannot be read, or looks at other cameras.
    """

    def __init__(self, env: gym.Env[Any, Any], config: EnvConfig) -> None:
        super().__init__(env)
        self._leaves = leaves_of(env.observation_space, config)
        self._judge = Judge.of(config.success, [leaf.spec for leaf in self._leaves])

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Nothing is judged before the first step."""
        if self._judge is not None:
            self._judge.restart()
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step, as the classifier sees it."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if self._judge is None:
            return obs, reward, terminated, truncated, info
        held = self._judge.sees({leaf.spec.key: leaf.of(obs) for leaf in self._leaves if leaf.spec.key in self._judge.cameras})
        return obs, float(held), bool(terminated) or held, truncated, {**info, "success": held, JUDGED: held}
