"""The guard inside each sub-environment: seeds every reset, copies last observations, turns exceptions into crashes."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from headrace.actor.config import EnvConfig
from headrace.actor.gym_human import human_action
from headrace.actor.gym_make import AnyEnv, make_env, reason_of
from headrace.actor.gym_spaces import blank, leaves_of
from headrace.actor.gym_success import JUDGED
from headrace.common.errors import EnvError
from headrace.common.seeds import derive_seed

CRASH = "headrace_crash"
SUCCESS = "headrace_success"
TASK = "headrace_task"
HUMAN = "headrace_human"
TASKS = 1 << 32


@dataclass(frozen=True)
class SubEnv:
    """Makes the guarded environment of one lane; a plain value, so that it reaches a spawned process.

    Attributes:
        config: what to make.
        place: run seed and place from which every episode's seed is derived.
        lane: which lane this is, 0..L-1.
        owner: pid of the process that steps the lanes.
    """

    config: EnvConfig
    place: tuple[int | str, ...]
    lane: int
    owner: int

    def __call__(self) -> Guard:
        """Make it; in a process of its own, leave Ctrl-C to the process that owns the lanes."""
        if os.getpid() != self.owner:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return Guard(self)

    def make(self) -> AnyEnv:
        """The bare environment."""
        env = make_env(self.config)
        if not isinstance(env, gym.Env):
            raise EnvError(f"env {self.config.id!r} returned a VectorEnv for a single lane")
        return env


class Guard(gym.Wrapper[Any, Any, Any, Any]):
    """Outermost wrapper of one lane.

    Reset k (the ``turn``) of lane l begins episode ``k * L + l`` and is seeded for it, whoever calls it; an environment with a
    method ``on_episode(lane, episode)`` is told first. A step or reset that raises ends the episode as truncated with
    the reason under info ``CRASH``, in every autoreset mode alike, and the next reset makes the environment anew: a
    reset that raises is thus an episode that crashed before its first step. Of info only task, outcome, a human's action
    and what a classifier says pass, so that nobody batches what nobody reads.
    """

    def __init__(self, maker: SubEnv) -> None:
        super().__init__(maker.make())
        self.turn = 0
        self._maker = maker
        self._leaves = leaves_of(self.observation_space, maker.config)
        self._crash = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; ``seed`` and ``options`` of the vector env are not used."""
        maker = self._maker
        episode = self.turn * maker.config.lanes + maker.lane
        self.turn += 1
        try:
            if self._crash:
                with contextlib.suppress(Exception):
                    self.env.close()
                self.env = maker.make()
                self._crash = ""
            if self.env.has_wrapper_attr("on_episode"):
                self.env.get_wrapper_attr("on_episode")(maker.lane, episode)
            obs, info = self.env.reset(seed=derive_seed(int(maker.place[0]), *maker.place[1:], episode))
            self._require_shapes(obs)
            return obs, _task(info)
        except Exception as error:  # any error of a foreign env is a crash of this lane, not of the actor
            self._crash = reason_of(error)
            return blank(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step, or the end of a crashed episode."""
        if not self._crash:
            try:
                obs, reward, terminated, truncated, info = self.env.step(action)
                self._require_shapes(obs)
                told = self._human(info) | ({JUDGED: info[JUDGED]} if JUDGED in info else {})
                if not (terminated or truncated):
                    return obs, float(reward), False, False, told
                # The autoreset that follows may overwrite an array that the env uses again and again.
                return copy.deepcopy(obs), float(reward), bool(terminated), bool(truncated), told | _outcome(info)
            except Exception as error:
                self._crash = reason_of(error)
        return blank(self.observation_space), 0.0, False, True, {CRASH: self._crash}

    def _require_shapes(self, obs: Any) -> None:
        """Refuse what would only be found out when the lanes' observations are put together, without its key."""
        for leaf in self._leaves:
            if (shape := np.shape(leaf.of(obs))) != leaf.spec.shape:
                raise EnvError(f"observation {leaf.spec.key!r} is {shape}, and its space says {leaf.spec.shape}")

    def _human(self, info: dict[str, Any]) -> dict[str, Any]:
        taken = human_action(info, int(np.prod(self.action_space.shape or ())))
        return {} if taken is None else {HUMAN: taken}

    def close(self) -> None:
        """Close the environment; one that crashed may fail to."""
        with contextlib.suppress(Exception):
            super().close()


def _task(info: dict[str, Any]) -> dict[str, Any]:
    """Which task the episode has, where the env numbers its tasks; what is no such number is the env's own affair."""
    task = info.get("task")
    if not isinstance(task, (int, np.integer)) or isinstance(task, bool) or not 0 <= task < TASKS:
        return {}
    return {TASK: int(task)}


def _outcome(info: dict[str, Any]) -> dict[str, Any]:
    for name in ("success", "is_success"):
        if name in info:
            return {SUCCESS: bool(info[name])}
    return {}
