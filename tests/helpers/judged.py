"""Labelled episodes before a camera for tests: where a bright square is in the middle, the task has succeeded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.actor.assembler import Assembler
from headrace.buffer import SACReplayPool
from headrace.common.classifying import Classifying
from headrace.common.specs import (
    HEALTH_JUDGED,
    HEALTH_SUCCESS,
    OUTCOME_FAILURE,
    OUTCOME_SUCCESS,
    ActionSpec,
    ObsSpec,
    TransitionSpec,
)
from headrace.common.weights import NO_VERSION, Version, WeightSet

SIDE = 9
EYE = ObsSpec("eye", (SIDE, SIDE, 1), "|u1")
SPEC = TransitionSpec((EYE, ObsSpec("pose", (2,), "<f4")), ActionSpec((1,), (-1.0,), (1.0,)))
STEPS = 6


def picture(rng: np.random.Generator, *, success: bool) -> np.ndarray[Any, Any]:
    """Dark, with grain of its own; bright in the middle where the task has succeeded."""
    image = rng.integers(0, 20, EYE.shape, np.uint8)
    if success:
        image[3:6, 3:6] = 230
    return image


def pool_of(outcomes: str, path: Path | None = None, seed: int = 0, spec: TransitionSpec = SPEC) -> SACReplayPool:
    """A pool of episodes of ``STEPS`` steps, a letter each.

    ``s``: success, labelled, seen in its last picture; ``f``: failure, labelled; ``u``: nobody has said anything; ``c``: ended
    by a classifier, and nobody has said otherwise; ``v``: ended by one, and people said failure; ``m``: judged, but not ended
    by one, and people said success; ``r``: it runs still.
    """
    rng, pool, assembler, seq = np.random.default_rng(seed), SACReplayPool(1000, spec=spec, path=path), Assembler(spec), 1
    for episode, kind in enumerate(outcomes):
        for t in range(STEPS + 1):
            seen = {"eye": picture(rng, success=t == STEPS and kind in "scm"), "pose": np.array([episode, t], np.float32)}
            if t == 0:
                assembler.begin(episode, seen)
                continue
            last = t == STEPS and kind != "r"
            bits = HEALTH_JUDGED * (kind in "cvm") | HEALTH_SUCCESS * (kind in "cv" and last)
            ends = last and kind in "scvm", last and kind in "fu"
            assembler.step(np.zeros(1), float(kind in "cv" and last), *ends, seen, version=NO_VERSION, health=bits)
        if kind == "r":
            assembler.abort()
        while (block := assembler.take(100)) is not None:
            if kind == "r":
                block.rows["truncated"] = 0
            pool.insert(block, "arm-0", 1, seq)
            if kind in "scvmf":
                said = OUTCOME_SUCCESS if kind in "scm" else OUTCOME_FAILURE
                pool.label("arm-0", 1, seq, seq + block.n_rows - 1, said)
            seq += block.n_rows
    return pool


def bright(threshold: float = 0.5, hold: int = 2, at: int = 100) -> WeightSet:
    """A classifier made by hand: success is where the middle is brighter than ``at`` of 255."""
    what = Classifying((EYE,), (1,), (1,), 1, (), threshold, hold)
    tensors = {name: np.zeros(shape, np.float32) for name, shape in what.shapes.items()}
    tensors["encoders.0.convolutions.0.weight"][0, 0, 1, 1] = 1
    tensors["encoders.0.convolutions.0.bias"][0] = 0.5
    tensors["head.projection.weight"][0, 3 * 7 + 3] = 1
    tensors["head.projection.bias"][0] = -at / 255
    # the norm of one number is 0 for every number, so two are kept: it and its negative
    kept = Classifying((EYE,), (1,), (1,), 2, (), threshold, hold)
    for name in ("head.projection.weight", "head.projection.bias"):
        tensors[name] = np.concatenate([tensors[name], -tensors[name]])
    tensors["head.norm.weight"], tensors["head.norm.bias"] = np.full(2, 3, np.float32), np.zeros(2, np.float32)
    tensors["head.dense.head.weight"] = np.array([[2, -2]], np.float32)
    return WeightSet(Version("classifier", 1, 1), kept.to_dict(), tensors)


class Bright(gym.Env[Any, Any]):
    """Bright from step ``at`` on in each ``every``-th episode; its own rewards of 5 are nobody's business.

    Args:
        at: the step.
        length: steps, after which it is truncated.
        flicker: steps that show nothing.
        every: which episodes.
    """

    observation_space = gym.spaces.Dict(
        {"eye": gym.spaces.Box(0, 255, EYE.shape, np.uint8), "pose": gym.spaces.Box(-99, 99, (2,), np.float32)}
    )
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, at: int = 3, length: int = 9, flicker: tuple[int, ...] = (), every: int = 2) -> None:
        self._at, self._length, self._flicker, self._every = at, length, tuple(flicker), every
        self._episode, self._t = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Bright at once, which is nobody's step."""
        self._episode, self._t = self._episode + 1, 0
        return self._see(success=True), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step."""
        self._t += 1
        shown = self._t >= self._at and self._t not in self._flicker and self._episode % self._every == 0
        return self._see(success=shown), 5.0, False, self._t == self._length, {"success": True}

    def _see(self, *, success: bool) -> dict[str, Any]:
        pose = np.array([self._episode, self._t], np.float32)
        return {"eye": picture(np.random.default_rng(self._t), success=success), "pose": pose}


def vector() -> gym.vector.SyncVectorEnv:
    """A VectorEnv of one's own."""
    return gym.vector.SyncVectorEnv([Bright])
