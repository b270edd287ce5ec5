"""Demonstrations on the table by a script that sees where everything is, as a directory that `pool.demos` takes.

From the root of the repository: python -m examples.envs.tabletop_demos tabletop_demos --episodes 200 --chunk 4 --overlap
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from examples.envs import recording
from examples.envs.tabletop import BLOCK, TIP, Array, Tabletop
from headrace.actor.config import WindowConfig

BEHIND, SLACK, WIDE = 0.05, 0.05, 0.22  # room behind a block, how far beside its line counts as behind it, and around others


def demonstrate(env: Tabletop, rng: np.random.Generator, noise: float = 0.2) -> Array:
    """An action ``(2,)`` to the block that is named, or behind it and then on; around the others, and shaken by ``noise``."""
    block = env.blocks[env.named]
    goal, avoided = block, [place for colour, place in env.blocks.items() if colour != env.named]
    if env.pushes:
        way = _unit(env.ring - block)
        aside = env.tip - block
        along = float(aside @ way)
        if along >= 0 or float(np.linalg.norm(aside - along * way)) >= SLACK:
            goal, avoided = block - way * (TIP + BLOCK + BEHIND), [*avoided, block]
    move = goal - env.tip
    direction = _unit(move)
    for place in avoided:
        direction = _around(env.tip, place, direction)
    pace = min(1.0, float(np.linalg.norm(move)) / env.speed)
    direction = direction / max(1e-6, float(np.abs(direction).max()))
    return np.clip(pace * direction + noise * pace * rng.standard_normal(2), -1, 1).astype(np.float32)


def _around(tip: Array, place: Array, direction: Array) -> Array:
    """The direction, bent to the side on which it passes a block, and off it where it is too near."""
    away = tip - place
    distance = float(np.linalg.norm(away))
    room = distance - TIP - BLOCK
    if room >= WIDE or float(direction @ away) >= 0:
        return direction
    side = np.array([-away[1], away[0]]) / distance
    if float(side @ direction) < 0:
        side = -side
    near = 1.0 - max(room - 0.05, 0.0) / (WIDE - 0.05)
    off = 5.0 * max(0.0, 0.12 - room) * away / distance
    return (1.0 - near) * direction + near * (side + off)


def _unit(vector: Array) -> Array:
    return vector / max(1e-6, float(np.linalg.norm(vector)))


def record(
    out: str | Path,
    episodes: int = 200,
    seed: int = 0,
    window: WindowConfig | None = None,
    overlap: bool = False,
    **kwargs: Any,
) -> int:
    """Demonstrations of ``Tabletop(**kwargs)`` that succeed, as an export at ``out``; its rows."""
    env = Tabletop(**kwargs)
    return recording.record(out, env, lambda rng: demonstrate(env, rng), episodes, seed, window, overlap)


if __name__ == "__main__":
    recording.main(record)
