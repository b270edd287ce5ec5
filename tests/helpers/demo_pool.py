"""Demonstrations of Pendulum's form, as an export."""

from pathlib import Path

import numpy as np

from headrace.actor.envs import make_spec
from headrace.buffer import SACReplayPool, export_pool
from headrace.common.block import Block
from headrace.launch.config import RunConfig


def export_demos(place: Path, config: RunConfig, n: int = 40) -> Path:
    """An export of ``n`` steps of one episode, for runs of ``config``."""
    spec = make_spec(config.env, config.window)
    rng = np.random.default_rng(0)
    rows = np.zeros(n, spec.row_dtype)
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(n), np.arange(1, n + 1)
    rows["t"], rows["steps"], rows["action"] = np.arange(n), 1, rng.uniform(-2, 2, (n, 1))
    pool = SACReplayPool(n, spec=spec)
    pool.insert(Block(rows, {"obs": rng.normal(0, 1, (n + 1, 3)).astype("<f4")}), "teacher", 1, 1)
    export_pool(pool, place)
    return place
