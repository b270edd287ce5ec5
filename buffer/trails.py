"""Rows back to env steps: which rows are consecutive steps of one episode, and what was executed in each of them.

Rows of ``steps`` begin one env step apart, whatever their windows cover, so each is one step; its own reward is the first of
its window. Rows of chunks keep one observation a decision, so the steps between cannot be had back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.buffer.transfer import MIN_SHARD_ROWS, Progress, Readable
from headrace.common.batch import Batch
from headrace.common.errors import PoolError, SpecError
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
SLICE_BYTES = 16 << 20


@dataclass(frozen=True)
class Trail:
    """Consecutive steps of one episode.

    Attributes:
        actor: whose they are.
        episode: its number there.
        first: place of the first step in the episode; more than 0 where earlier ones are gone.
        ids: ``(n,)`` int64, a row each, in order.
        ended: whether the last one is the episode's.
        outcome: ``OUTCOME_*``.
        task: its number.
    """

    actor: str
    episode: int
    first: int
    ids: Array
    ended: bool
    outcome: int
    task: int


@dataclass(frozen=True)
class Taken:
    """Steps of a trail.

    Attributes:
        obs: key -> ``(n, *shape)``, what was seen before each step.
        after: key -> ``(*shape)``, what was seen after the last one.
        action: ``(n, A)`` float32, env units.
        reward: ``(n,)`` float32.
        terminated: ``(n,)`` bool.
        truncated: ``(n,)`` bool.
        source: ``(n,)`` uint8 ``SOURCE_*``.
        health: ``(n,)`` uint8, bits ``HEALTH_*``.
    """

    obs: dict[str, Array]
    after: dict[str, Array]
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    source: Array
    health: Array

    def __len__(self) -> int:
        return len(self.reward)


def trails(pool: Readable, progress: Progress | None = None) -> list[Trail]:
    """Every piece of an episode that is live, in the order of its first row.

    Args:
        pool: a pool or a view of one.
        progress: called with rows done and rows in all.

    Raises:
        SpecError: rows of chunks.
        PoolError: no rows.
    """
    spec = _steps_spec(pool)
    start, head = pool.tail, pool.head
    keys, ids, facts = [], [], []
    for low in range(start, head, _step(spec)):
        batch = pool.live(low, min(head, low + _step(spec)))
        rows = batch.rows
        keys.append(np.stack([rows["actor"].astype("<u8"), rows["stream"], rows["episode"], rows["t"].astype("<u8")], axis=1))
        ids.append(batch.ids)
        facts.append(np.stack([_ends(rows), rows["outcome"], rows["task"]], axis=1).astype(np.int64))
        if progress is not None:
            progress(low - start, head - start)
    key, row, fact = (np.concatenate(parts) if parts else np.empty((0, 4)) for parts in (keys, ids, facts))
    if not len(row):
        raise PoolError("the pool holds no rows")
    order = np.lexsort(key.T[::-1])
    key, row, fact = key[order], row[order], fact[order]
    follows = (key[1:, :3] == key[:-1, :3]).all(axis=1) & (key[1:, 3] == key[:-1, 3] + 1) & (fact[1:, 2] == fact[:-1, 2])
    cuts = np.flatnonzero(~follows) + 1
    actors, out = pool.actors(), []
    for first, last in zip([0, *cuts.tolist()], [*(cuts - 1).tolist(), len(row) - 1], strict=True):
        actor, _, episode, t = key[first].tolist()
        ended, outcome, task = fact[last].tolist()
        out.append(Trail(actors[actor], episode, t, row[first : last + 1], bool(ended), outcome, task))
    return sorted(out, key=lambda trail: int(trail.ids[0]))


def taken(pool: Readable, trail: Trail) -> Iterator[Taken]:
    """The steps of a trail, a bounded number at a time.

    Raises:
        PoolError: some of its rows went meanwhile.
    """
    spec = _steps_spec(pool)
    cuts = np.flatnonzero(np.diff(trail.ids) != 1) + 1
    for run in np.split(trail.ids, cuts):
        for low in range(int(run[0]), int(run[-1]) + 1, _step(spec)):
            high = min(low + _step(spec), int(run[-1]) + 1)
            batch = pool.live(low, high)
            if len(batch) != high - low:
                raise PoolError(f"rows of episode {trail.episode} of {trail.actor} went while they were read; try again")
            yield _taken(batch, spec)


def _taken(batch: Batch, spec: TransitionSpec) -> Taken:
    rows = batch.rows
    alone = rows["steps"] == 1
    newest = (slice(None), -1) if spec.stack > 1 else (slice(None),)
    return Taken(
        {key: values[newest] for key, values in batch.obs.items()},
        {key: values[newest][-1] for key, values in batch.next_obs.items()},
        rows["action"],
        rows["rewards"][:, 0],
        alone & (rows["terminated"] != 0),
        alone & (rows["truncated"] != 0) & (rows["terminated"] == 0),
        rows["source"][:, 0],
        rows["health"],
    )


def _ends(rows: Array) -> Array:
    """Whether a row's own step is the last one of its episode: its window is no longer, and ends there."""
    ends: Array = (rows["steps"] == 1) & ((rows["terminated"] | rows["truncated"]) != 0)
    return ends


def _steps_spec(pool: Readable) -> TransitionSpec:
    if pool.spec is None:
        raise PoolError("the pool holds no rows")
    if pool.spec.kind == "chunk":
        raise SpecError(
            "rows of chunks (window.chunk) keep one observation a decision, and none of the steps between; only rows of steps"
            " can be given away step by step"
        )
    return pool.spec


def _step(spec: TransitionSpec) -> int:
    """Rows at once."""
    return max(MIN_SHARD_ROWS // 8, SLICE_BYTES // (spec.row_dtype.itemsize + 2 * spec.stack * spec.frame_nbytes))
