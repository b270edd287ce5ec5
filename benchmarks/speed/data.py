"""The two kinds of rows that every row of the speed table is measured with, as spec, blocks and plain transitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

OBS, ACTION, BATCH = 17, 6, 256
IMAGE, STATE = (2, 128, 128, 3), 32
_ACTION = ActionSpec((ACTION,), (-1.0,) * ACTION, (1.0,) * ACTION)
FLAT = TransitionSpec((ObsSpec("obs", (OBS,), "<f4"),), _ACTION)
IMAGES = TransitionSpec((ObsSpec("image", IMAGE, "|u1"), ObsSpec("state", (STATE,), "<f4")), _ACTION)
SPECS = {"flat": FLAT, "images": IMAGES}


def frames(spec: TransitionSpec, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """``n`` frames of noise."""
    out: dict[str, Any] = {}
    for o in spec.obs:
        noise = rng.integers(0, 256, (n, *o.shape), np.uint8) if o.dtype == "|u1" else rng.standard_normal((n, *o.shape), "f4")
        out[o.key] = noise
    return out


def block(spec: TransitionSpec, n: int, rng: np.random.Generator) -> Block:
    """``n`` consecutive one-step rows of an episode that goes on."""
    rows = np.zeros(n, spec.row_dtype)
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(n), np.arange(1, n + 1)
    rows["action"], rows["rewards"] = rng.uniform(-1, 1, (n, ACTION)), rng.standard_normal((n, 1))
    rows["steps"], rows["t"] = 1, np.arange(n)
    return Block(rows, frames(spec, n + 1, rng))


def plain(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """``n`` plain transitions of HalfCheetah's size."""
    return {
        "state": rng.standard_normal((n, OBS), "f4"),
        "action": rng.uniform(-1, 1, (n, ACTION)).astype("f4"),
        "reward": rng.standard_normal(n, "f4"),
        "next_state": rng.standard_normal((n, OBS), "f4"),
        "done": np.zeros(n, bool),
    }
