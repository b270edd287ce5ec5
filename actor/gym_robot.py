"""A gymnasium environment as a robot: each command is one step of it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from headrace.actor.config import EnvConfig
from headrace.actor.gym_human import human_action
from headrace.actor.gym_make import AnyEnv, make_env
from headrace.actor.gym_spaces import action_spec, blank, leaves_of
from headrace.actor.gym_success import JUDGED
from headrace.actor.robot import Command, Observation, RobotState
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import EnvError
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN

Array = np.ndarray[Any, Any]


class GymRobot:
    """The :class:`headrace.actor.robot.Robot` of an environment, which must not wait for its period by itself.

    A command is a step, holds too. What a step gave is what is observed; before the first reset that is zeros. Where the
    environment has a method ``robot_state()``, that says position and fault; one with ``stop()`` is told to stop.

    Args:
        config: the environment.
        clock: tells when a deadline has passed.
    """

    def __init__(self, config: EnvConfig, clock: Clock | None = None) -> None:
        env = make_env(config)
        if not isinstance(env, gym.Env):
            env.close()
            raise EnvError(f"env {config.id!r} returned a VectorEnv, and a robot is one environment")
        self._env: AnyEnv = env
        self._clock = clock or MonotonicClock()
        self._leaves = leaves_of(env.observation_space, config)
        self.obs = tuple(leaf.spec for leaf in self._leaves)
        self.action = action_spec(env.action_space, config.id)
        self._seen = Observation(self._frames(blank(env.observation_space)))
        self._over = True

    def connect(self) -> None:
        """Nothing: environments reach their hardware when they are made or reset."""

    def reset(self, episode: int, seed: int) -> None:
        """Reset the environment; one with ``on_episode(lane, episode)`` is told which episode begins."""
        if self._env.has_wrapper_attr("on_episode"):
            self._env.get_wrapper_attr("on_episode")(0, episode)
        obs, _ = self._env.reset(seed=seed)
        self._seen, self._over = Observation(self._frames(obs)), False

    def observe(self) -> Observation:
        """What the last step or reset gave."""
        return self._seen

    def act(self, command: Command) -> bool:
        """One step; none between episodes, nor after the deadline."""
        if self._clock.now() > command.deadline:
            return False
        if self._over or command.episode < 0:
            return True
        space = self._env.action_space
        action = np.asarray(command.action).reshape(space.shape or ()).astype(space.dtype)
        obs, reward, terminated, truncated, info = self._env.step(action)
        self._over = bool(terminated or truncated)
        outcome = _outcome(info) if self._over else OUTCOME_UNKNOWN
        ends = bool(terminated), bool(truncated)
        human, judged = human_action(info, self.action.dim), info.get(JUDGED)
        self._seen = Observation(self._frames(obs), {}, float(reward), *ends, outcome, human, judged)
        return True

    def stop(self) -> None:
        """Tell the environment, if it can be told."""
        if self._env.has_wrapper_attr("stop"):
            self._env.get_wrapper_attr("stop")()

    def state(self) -> RobotState:
        """What the environment says of itself, if it says anything."""
        if not self._env.has_wrapper_attr("robot_state"):
            return RobotState()
        found = self._env.get_wrapper_attr("robot_state")()
        return found if isinstance(found, RobotState) else RobotState(*found)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _frames(self, obs: Any) -> dict[str, Array]:
        return {leaf.spec.key: np.array(leaf.of(obs), leaf.spec.dtype) for leaf in self._leaves}


def _outcome(info: dict[str, Any]) -> int:
    for name in ("success", "is_success"):
        if name in info:
            return OUTCOME_SUCCESS if info[name] else OUTCOME_FAILURE
    return OUTCOME_UNKNOWN
