"""Pools that scripted lanes fill, with a spec of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from helpers.lane_rows import Lane, lane_spec

from headrace.buffer import PoolConfig, SACReplayPool
from headrace.buffer.inserted import Inserted
from headrace.common.specs import TransitionSpec

SPECS = {
    "plain": lane_spec(),
    "stack": lane_spec(stack=3),
    "images": lane_spec(stack=2, image=4),
    "n-step": lane_spec(window=3),
    "chunk": lane_spec(stack=3, window=4, kind="chunk"),
}


def make(capacity: int, spec: TransitionSpec = SPECS["plain"], path: Path | None = None, **config: Any) -> SACReplayPool:
    """A pool that draws the same in every test."""
    settings = PoolConfig(**config) if config else None
    return SACReplayPool(capacity, path=path, spec=spec, config=settings, rng=np.random.default_rng(0))


def put(pool: SACReplayPool, lane: Lane, n: int, actor: str | None = None, stream: int = 1) -> Inserted:
    """Insert the lane's next n decisions."""
    first = lane.seq
    return pool.insert(lane.block(n), actor or f"actor-{lane.actor}", stream, first)
