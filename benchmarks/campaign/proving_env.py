"""An environment that logs every executed step by itself, so that each row of a pool can be proved from outside.

The observation is (life, episode, t), where life is the pid of the process that acts, and the step from t to t + 1 has
reward t: no two steps of a run are alike. The log of a process is one JSON line a step, written before the step returns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import gymnasium as gym
import numpy as np


class ProvingEnv(gym.Env[Any, Any]):
    """Counts its steps; actions change nothing.

    Args:
        log_dir: where the log of this process lies; its first line holds the process's command line.
        lengths: steps of each episode, in turn.
        step_s: time that one step takes (s).
    """

    def __init__(self, log_dir: str, lengths: Sequence[int] = (7, 13, 40), step_s: float = 0.0) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._place, self._lengths, self._step_s = Path(log_dir), tuple(lengths), step_s
        self._log: BinaryIO | None = None
        self._episode, self._t = -1, 0

    def on_episode(self, lane: int, episode: int) -> None:
        """The lanes say which episode the next reset begins."""
        self._episode = episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the episode."""
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Log the step and count it; even episodes end as terminated, odd ones as truncated."""
        if self._step_s:
            time.sleep(self._step_s)
        before = self._t
        self._t += 1
        done = self._t == self._lengths[self._episode % len(self._lengths)]
        terminated, truncated = done and self._episode % 2 == 0, done and self._episode % 2 == 1
        acted = np.asarray(action, "<f4").tobytes().hex()
        self._write([self._episode, before, acted, terminated, truncated])
        return self._obs(), float(before), terminated, truncated, {}

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _obs(self) -> Any:
        return np.array([os.getpid(), self._episode, self._t], np.float32)

    def _write(self, value: Any) -> None:
        if self._log is None:  # not before a step: the env is also made only to look at its spaces
            self._log = (self._place / f"life-{os.getpid()}.jsonl").open("ab", buffering=0)
            self._write({"pid": os.getpid(), "argv": sys.argv})
        self._log.write(json.dumps(value).encode() + b"\n")  # unbuffered: a SIGKILL loses no logged step


def make(**kwargs: Any) -> ProvingEnv:
    """``env.id: campaign.proving_env:make``."""
    return ProvingEnv(**kwargs)
