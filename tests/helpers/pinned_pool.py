"""Pools with pinned demonstrations of a scripted lane, whose rows say that they are the teacher's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from helpers.lane_pool import SPECS, make
from helpers.lane_rows import Lane

from headrace.buffer import SACReplayPool, SamplingConfig
from headrace.common.batch import Batch
from headrace.common.config import load
from headrace.common.specs import TransitionSpec

SPEC = SPECS["plain"]
TEACHER = 9
HALVES = {
    "demo": {"share": 0.5, "source": ["demo"], "when_small": "replace"},
    "online": {"share": 0.5, "source": ["policy", "human"]},
}


def demos_of(n: int, spec: TransitionSpec = SPEC, actor: int = TEACHER, **columns: Any) -> SACReplayPool:
    """A pool of n decisions of one lane."""
    pool, lane = make(n, spec), Lane(spec, actor)
    block = lane.block(n)
    for name, value in columns.items():
        block.rows[name] = value
    pool.insert(block, f"teacher-{actor}", 1, 1)
    return pool


def with_demos(
    demos: Any, capacity: int = 50, path: Path | None = None, sets: dict[str, Any] | None = None, **options: Any
) -> SACReplayPool:
    """A pool that pins ``demos`` and draws the same in every test."""
    sampling = load(SamplingConfig, {"sets": sets or {}, **options}, "sampling")
    rng = np.random.default_rng(0)
    return SACReplayPool(capacity, path=path, demos=demos, sampling=sampling, rng=rng)


def is_demo(batch: Batch) -> np.ndarray:
    """Which rows say themselves that they are the teacher's."""
    return batch.obs["obs"].reshape(len(batch), -1, 3)[:, -1, 0] == TEACHER
