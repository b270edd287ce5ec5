"""Labelled episodes before a camera for tests: where a bright square is in the middle, the task has succeeded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
