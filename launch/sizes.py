"""The sizes of a run that must fit each other: env steps, fill, batch and pool, and all that must change where they do not."""

from __future__ import annotations

import math

from headrace.buffer.pacing import PacingConfig
from headrace.common.errors import ConfigError

BATCH, FILL, RATIO, RANDOM = "learner.batch_size", "pacing.min_fill", "pacing.ratio", "pacing.random_steps"


def require_sizes(pacing: PacingConfig, batch: int, capacity: int) -> None:
    """Refuse sizes with which no update could be made, or not as many as the ratio asks for.

    Args:
        pacing: steps, fill and ratio.
        batch: rows of one update.
        capacity: rows of the pool.

    Raises:
        ConfigError: naming the first key that does not fit, and every change with which the run is accepted.
    """
    given = {BATCH: batch, FILL: pacing.min_fill, RATIO: pacing.ratio, RANDOM: pacing.random_steps}
    valid = _nearest(pacing, batch, capacity)
    first, *others = [key for key in given if given[key] != valid[key]] or [""]
    if not first:
        return
    said = f"{first}: {given[first]:.12g} {_reason(first, pacing, batch, capacity)}; nearest valid: {valid[first]:.12g}"
    said += ", or 0 to collect only" if first == RATIO else ""
    said += f", with {' and '.join(f'{key} {valid[key]:.12g}' for key in others)}" if others else ""
    if batch <= pacing.min_fill <= capacity and first != RATIO:  # then the run is only too short
        said += f"; or pacing.env_steps {_long_enough(pacing)}"
    raise ConfigError(said)


def _nearest(pacing: PacingConfig, batch: int, capacity: int) -> dict[str, float]:
    """The values that fit this length of run and this pool; those that fit already stay."""
    goal, ratio = pacing.env_steps, pacing.ratio
    most = min(capacity, goal - 1) if goal and ratio else capacity
    batch = min(batch, most)
    fill = min(max(pacing.min_fill, batch), most)
    if goal and 0 < ratio * (goal - fill) < 1:
        ratio = math.ceil(1e6 / (goal - fill)) / 1e6
    return {BATCH: batch, FILL: fill, RATIO: ratio, RANDOM: min(pacing.random_steps, goal or pacing.random_steps)}


def _reason(key: str, pacing: PacingConfig, batch: int, capacity: int) -> str:
    goal, fill = pacing.env_steps, pacing.min_fill
    size = batch if key == BATCH else fill
    if key == RATIO:
        return f"over the {goal - fill} env steps after {FILL} {fill} owes no update"
    if key == RANDOM:
        return f"is above pacing.env_steps {goal}"
    if goal and pacing.ratio and size >= goal:
        why = "no batch could be drawn before the end" if key == BATCH else f"{RATIO} {pacing.ratio:g} can never be met"
        return f"is not below pacing.env_steps {goal}, so {why}"
    return f"is above pool.capacity {capacity}" if size > capacity else f"is below {BATCH} {batch}"


def _long_enough(pacing: PacingConfig) -> int:
    """Env steps with which nothing else must change."""
    beyond = math.ceil(1 / pacing.ratio) if pacing.ratio else 0
    beyond += pacing.ratio * beyond < 1
    return max(pacing.random_steps, pacing.min_fill + beyond)
