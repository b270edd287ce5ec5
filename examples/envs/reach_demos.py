"""Demonstrations of the reach task by a script that knows the way, as a directory that `pool.demos` takes.

From the root of the repository: python -m examples.envs.reach_demos reach_demos
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from examples.envs import recording
from examples.envs.reach import Array, Reach
from headrace.actor.config import WindowConfig


def demonstrate(env: Reach, rng: np.random.Generator, noise: float = 0.3) -> Array:
    """An action ``(2,)`` straight to the target, shaken by ``noise``, so that demonstrations see more than a line."""
    away = (env.target - env.tip) / env.speed
    return np.clip(away / max(1.0, np.abs(away).max()) + noise * rng.standard_normal(2), -1, 1).astype(np.float32)


def record(
    out: str | Path,
    episodes: int = 50,
    seed: int = 0,
    window: WindowConfig | None = None,
    overlap: bool = False,
    **kwargs: Any,
) -> int:
    """Demonstrations of ``Reach(**kwargs)`` that end with a touch, as an export at ``out``; its rows."""
    env = Reach(**kwargs)
    return recording.record(out, env, lambda rng: demonstrate(env, rng), episodes, seed, window, overlap)


if __name__ == "__main__":
    recording.main(record)
