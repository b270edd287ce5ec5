"""An environment whose rows prove themselves: observation (actor, episode, t), reward t, scripted lengths and ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

ENDS = ("terminated", "truncated", "both", "raise", "raise_reset", "die", "hang")
HANG_S = 600.0


class ScriptedEnv(gym.Env[Any, Any]):
    """Counts its steps and ends as told; actions change nothing.

    Episode e is ``lengths[e % len(lengths)]`` steps long and ends by ``ends[e % len(ends)]``: the flags for the first
    three; ``raise`` raises in the step after the last complete one, ``die`` ends its process there, ``hang``
    sleeps there, ``raise_reset`` raises in its reset. The step from t to t+1 has reward t.

    Args:
        actor: number written into each observation.
        lengths: steps of each episode.
        ends: how each episode ends.
        form: ``box`` for one float32 array (actor, episode, t); ``dict`` for nested keys with an image, a
            float64 array, an integer and a flag.
        reuse: write each observation into the same array, as some simulators do.
        success: episodes whose number is odd report info success at their end.
        log: file to which each action is appended as one JSON line (lane, episode, t, action).
        delay_s: how long a step takes.
        action_dim: A; bounds are -1 to 1 in the first dimension, 0 to 5 in the others.
    """

    def __init__(
        self,
        actor: int = 0,
        lengths: Sequence[int] = (3,),
        ends: Sequence[str] = ("truncated",),
        form: str = "box",
        reuse: bool = False,
        success: bool = False,
        log: str | None = None,
        action_dim: int = 1,
        delay_s: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.render_mode = render_mode
        self._actor, self._lengths, self._ends, self._form = actor, tuple(lengths), tuple(ends), form
        self._delay_s = delay_s
        self._success, self._log = success, None if log is None else Path(log)
        self._reused = np.zeros(3, np.float32) if reuse else None
        self._lane, self._episode, self._t = 0, -1, 0
        low = np.array([-1.0] + [0.0] * (action_dim - 1), np.float32)
        self.action_space = gym.spaces.Box(low, np.array([1.0] + [5.0] * (action_dim - 1), np.float32))
        plain = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        nested = gym.spaces.Dict(
            {"pose": gym.spaces.Box(-np.inf, np.inf, (2, 2), np.float64), "t": gym.spaces.Discrete(1 << 20)}
        )
        self.observation_space = (
            plain
            if form == "box"
            else gym.spaces.Dict(
                {
                    "camera": gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
                    "stamp": plain,
                    "arm": nested,
                    "held": gym.spaces.MultiBinary(2),
                }
            )
        )

    def on_episode(self, lane: int, episode: int) -> None:
        """The lanes say what the next reset begins."""
        self._lane, self._episode = lane, episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        if self._end == "raise_reset":
            raise RuntimeError(f"scripted reset failure in episode {self._episode}")
        return self._obs(), {"seed": seed}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        length = self._lengths[self._episode % len(self._lengths)]
        if self._t >= length:
            self._break()
        self._write(action)
        time.sleep(self._delay_s)
        self._t += 1
        done = self._t == length
        info = {"success": self._episode % 2 == 1} if self._success and done else {}
        terminated = done and self._end in ("terminated", "both")
        truncated = done and self._end in ("truncated", "both")
        return self._obs(), float(self._t - 1), terminated, truncated, info

    def render(self) -> Any:
        return np.full((16, 16, 3), self._t % 256, np.uint8)

    @property
    def _end(self) -> str:
        return self._ends[self._episode % len(self._ends)]

    def _break(self) -> None:
        if self._end == "die":
            os._exit(7)
        if self._end == "hang":
            time.sleep(HANG_S)
        if self._end == "raise":
            raise RuntimeError(f"scripted failure in episode {self._episode} at t = {self._t}")
        raise AssertionError(f"stepped past the end of episode {self._episode}")

    def _obs(self) -> Any:
        stamp = np.array([self._actor, self._episode, self._t], np.float32)
        if self._reused is not None:
            self._reused[:] = stamp
            stamp = self._reused
        if self._form == "box":
            return stamp
        return {
            "camera": np.full((4, 4, 3), self._t % 256, np.uint8),
            "stamp": stamp,
            "arm": {"pose": np.full((2, 2), self._t / 3), "t": self._t},
            "held": np.array([self._t % 2, 1], np.int8),
        }

    def _write(self, action: Any) -> None:
        if self._log is not None:
            line = json.dumps([self._lane, self._episode, self._t, np.ravel(action).tolist()]) + "\n"
            with self._log.open("a") as file:  # one write call, appended: lanes in several processes do not mix lines
                file.write(line)


def make(**kwargs: Any) -> ScriptedEnv:
    """``env.id: helpers.scripted:make``."""
    return ScriptedEnv(**kwargs)


def make_vector(lanes: int = 2, autoreset: str | None = "NextStep", **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """``env.id: helpers.scripted:make_vector``: a vector env without guards; ``autoreset`` None hides its mode."""
    makers = [lambda: ScriptedEnv(**kwargs) for _ in range(lanes)]
    venv = gym.vector.SyncVectorEnv(makers, autoreset_mode=autoreset or "NextStep")
    for lane, env in enumerate(venv.envs):
        env.unwrapped.on_episode(lane, lane)
    if autoreset is None:
        del venv.metadata["autoreset_mode"]
    return venv


def read_log(path: Path) -> dict[tuple[int, int, int], list[float]]:
    """(lane, episode, t) -> action, from a log; a step executed twice is an error."""
    out: dict[tuple[int, int, int], list[float]] = {}
    for line in path.read_text().splitlines():
        lane, episode, t, action = json.loads(line)
        key = (lane, episode, t)
        if key in out:
            raise ValueError(f"{key} was executed twice")
        out[key] = action
    return out
