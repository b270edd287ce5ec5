"""An environment whose rows prove themselves: observation (actor, episode, t), reward t, scripted lengths and ends.

With a history it logs each step by itself before it happens: the witness from outside that every row is judged by.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, OUTCOME_UNKNOWN
from headrace.launch.chaos.history import SUFFIX, History, read_all

ENV = "headrace.launch.chaos.scripted:make"  # ``env.id``
STEPS = "steps"  # kind of its histories
MOST_LIVES = 1 << 24  # whole numbers below are exact in float32
HANG_S = 600.0


class ScriptedEnv(gym.Env[Any, Any]):
    """Counts its steps and ends as told; actions change nothing.

    Episode e is ``lengths[e % len(lengths)]`` steps long and ends by ``ends[e % len(ends)]``: the flags for ``terminated``,
    ``truncated`` and ``both``; ``raise`` raises in the step after the last complete one, ``die`` ends its process there,
    ``hang`` sleeps there, ``raise_reset`` raises in its reset. The step from t to t + 1 has reward t.

    Args:
        actor: number written into each observation; none: one that no other env of the same history has.
        lengths: steps of each episode.
        ends: how each episode ends.
        form: ``box`` for one float32 array (actor, episode, t); ``dict`` for nested keys with an image, a
            float64 array, an integer and a flag.
        reuse: write each observation into the same array, as some simulators do.
        success: episodes say info success at their end: true of those whose number is odd.
        history: directory for a history of the steps; begun at the first reset.
        delay_s: how long a step takes.
        action_dim: A; bounds are -1 to 1 in the first dimension, 0 to 5 in the others.
        bounds: of every dimension, in place of those.
    """

    def __init__(
        self,
        actor: int | None = 0,
        lengths: Sequence[int] = (3,),
        ends: Sequence[str] = ("truncated",),
        form: str = "box",
        reuse: bool = False,
        success: bool = False,
        history: str | None = None,
        action_dim: int = 1,
        bounds: Sequence[float] | None = None,
        delay_s: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
        self.render_mode = render_mode
        self._actor, self._lengths, self._ends, self._form = actor, tuple(lengths), tuple(ends), form
        self._delay_s, self._success = delay_s, success
        self._place = None if history is None else Path(history)
        self._history: History | None = None
        self._reused = np.zeros(3, np.float32) if reuse else None
        self._lane, self._episode, self._t = 0, -1, 0
        low, high = bounds or (0.0, 5.0)
        first = bounds or (-1.0, 1.0)
        rest = action_dim - 1
        self.action_space = gym.spaces.Box(
            np.array([first[0]] + [low] * rest, np.float32), np.array([first[1]] + [high] * rest, np.float32)
        )
        self.observation_space = _space(form)

    def on_episode(self, lane: int, episode: int) -> None:
        """The lanes say what the next reset begins."""
        self._lane, self._episode = lane, episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the episode."""
        super().reset(seed=seed)
        self._t = 0
        if self._place is not None and self._history is None:  # an env is also made only to look at its spaces
            self._actor, self._history = _begun(self._place, self._actor)
        if self._end == "raise_reset":
            raise RuntimeError(f"scripted reset failure in episode {self._episode}")
        return self._obs(), {"seed": seed}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Log the step and count it."""
        length = self._lengths[self._episode % len(self._lengths)]
        if self._t >= length:
            self._break()
        done = self._t + 1 == length
        terminated = done and self._end in ("terminated", "both")
        truncated = done and self._end in ("truncated", "both")
        if self._history is not None:
            acted = np.ravel(action).astype("<f4").tobytes().hex()
            flags = int(terminated), int(truncated)
            self._history.write("step", self._lane, self._episode, self._t, acted, *flags, self._outcome if done else 0)
        time.sleep(self._delay_s)
        self._t += 1
        info = {"success": self._outcome == OUTCOME_SUCCESS} if self._success and done else {}
        return self._obs(), float(self._t - 1), terminated, truncated, info

    def render(self) -> Any:
        """A grey picture that tells t."""
        return np.full((16, 16, 3), self._t % 256, np.uint8)

    def close(self) -> None:
        """Close the history."""
        if self._history is not None:
            self._history.close()

    @property
    def _outcome(self) -> int:
        """What becomes of the episode that runs."""
        if not self._success:
            return OUTCOME_UNKNOWN
        return OUTCOME_SUCCESS if self._episode % 2 else OUTCOME_FAILURE

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
        stamp = np.array([self._actor or 0, self._episode, self._t], np.float32)
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


def make(**kwargs: Any) -> ScriptedEnv:
    """What :data:`ENV` names."""
    return ScriptedEnv(**kwargs)


def make_vector(lanes: int = 2, autoreset: str | None = "NextStep", **kwargs: Any) -> gym.vector.VectorEnv[Any, Any, Any]:
    """``env.id: headrace.launch.chaos.scripted:make_vector``: without guards; ``autoreset`` None hides its mode."""
    envs = [ScriptedEnv(**kwargs) for _ in range(lanes)]
    makers = [partial(_same, env) for env in envs]
    venv = gym.vector.SyncVectorEnv(makers, autoreset_mode=autoreset or "NextStep")
    for lane, env in enumerate(envs):
        env.on_episode(lane, lane)
    if autoreset is None:
        del venv.metadata["autoreset_mode"]
    return venv


def executed(directory: Path) -> Mapping[tuple[int, int, int], list[float]]:
    """(lane, episode, t) -> action, over the histories of one actor's processes.

    Raises:
        ValueError: a step was executed twice.
    """
    out: dict[tuple[int, int, int], list[float]] = {}
    for told in read_all(directory, STEPS):
        for _, _, lane, episode, t, action, *_ in told.lines:
            key = (lane, episode, t)
            if key in out:
                raise ValueError(f"{key} was executed twice")
            out[key] = np.frombuffer(bytes.fromhex(action), "<f4").tolist()
    return out


def _same(env: ScriptedEnv) -> ScriptedEnv:
    return env


def _space(form: str) -> gym.Space[Any]:
    plain = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    if form == "box":
        return plain
    nested = gym.spaces.Dict({"pose": gym.spaces.Box(-np.inf, np.inf, (2, 2), np.float64), "t": gym.spaces.Discrete(1 << 20)})
    camera = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)
    return gym.spaces.Dict({"camera": camera, "stamp": plain, "arm": nested, "held": gym.spaces.MultiBinary(2)})


def _begun(place: Path, actor: int | None) -> tuple[int, History]:
    """The number of an env and its history, whose name no other one of the directory has."""
    while True:
        number = secrets.randbelow(MOST_LIVES - 1) + 1
        shown = number if actor is None else actor
        try:
            return shown, History(place / f"{STEPS}-{number}{SUFFIX}", {"actor": shown, "argv": sys.argv})
        except FileExistsError:
            continue
