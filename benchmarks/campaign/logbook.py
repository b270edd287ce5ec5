"""The logbook: a wrapper that writes down each step of any env, as the pool must hold it, before its actor hears of it."""

from __future__ import annotations

import hashlib
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np

from campaign.conservation import Life, Step
from headrace.actor.config import EnvConfig
from headrace.actor.gym_spaces import frames_of, leaves_of
from headrace.launch.chaos import history
from headrace.launch.chaos.history import SUFFIX, History
from headrace.launch.chaos.scripted import STEPS

WRAPPER = "campaign.logbook:Logbook"
Env = gym.Env[Any, Any]


class Logbook(gym.Wrapper[Any, Any, Any, Any]):
    """Logs to a history of this process, begun at its first reset: an env is also made only to look at its spaces.

    Args:
        env: one lane, of rows that are one step each.
        directory: of the histories.
        pause_s: each step takes so much longer, as in a simulator that sets the pace of a run.
    """

    def __init__(self, env: Env, directory: str, pause_s: float = 0.0) -> None:
        super().__init__(env)
        self._pause_s = pause_s
        self._leaves = leaves_of(env.observation_space, EnvConfig("logged"))
        self._place = Path(directory)
        self._history: History | None = None
        self._episode = self._t = 0
        self._before: Mapping[str, Any] = {}

    def on_episode(self, lane: int, episode: int) -> None:
        """The lanes say what the next reset begins."""
        self._episode = episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the episode."""
        if self._history is None:
            path = self._place / f"{STEPS}-{secrets.token_hex(8)}{SUFFIX}"
            self._history = History(path, {"argv": sys.argv})
        obs, info = self.env.reset(seed=seed, options=options)
        self._t, self._before = 0, frames_of(self._leaves, obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the env, and log what the row of this step is."""
        time.sleep(self._pause_s)
        obs, reward, terminated, truncated, info = self.env.step(action)
        frames = frames_of(self._leaves, obs)
        acted = np.ravel(action).astype("<f4").tobytes() + np.array([reward], "<f4").tobytes() + np.array([1], "<u2").tobytes()
        seen = b"".join(part.tobytes() for key in sorted(frames) for part in (self._before[key], frames[key]))
        ends = {(terminated, truncated), (terminated, truncated or not terminated)}  # the last row of all may be cut off
        digests = [hashlib.blake2b(acted + bytes(end) + seen, digest_size=8).hexdigest() for end in sorted(ends)]
        if self._history is not None:
            self._history.write("step", self._episode, self._t, digests)
        self._t, self._before = self._t + 1, frames
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        """Close the env and the history."""
        super().close()
        if self._history is not None:
            self._history.close()


def read_lives(directory: Path) -> list[Life]:
    """The actor processes that logged steps; those of evaluations are left out."""
    lives = []
    for number, told in enumerate(history.read_all(directory, STEPS)):
        argv = told.about["argv"]
        if "actor" in argv and "--evaluate" not in argv:
            steps = tuple(Step(episode, t, tuple(digests)) for _, _, episode, t, digests in told.lines)
            lives.append(Life(told.about["pid"], number, argv[argv.index("--id") + 1], steps))
    return lives
