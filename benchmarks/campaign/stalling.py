"""Inserts at a fixed rate in windows, alone and beside a snapshot in turn, and what the two say of each other.

The stall of a window is the share of its wall time by which inserts took longer than the median insert of the windows alone.
Each snapshot lies between two windows alone of about its own length: what it adds is its stall less their mean. How much
neighbouring windows alone differ says how much of that other work on the machine may be.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from campaign.intervals import mean_interval
from headrace.buffer import PoolConfig, SACReplayPool
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

BLOCK, RATE, FIRST_S = 32, 200.0, 2.0  # rows an insert, inserts a second, length of the first window
MOST_STALL = 0.01
MET, MISSED, NOISY = "met", "missed", "too noisy"
SPEC = TransitionSpec((ObsSpec("obs", (17,), "<f4"),), ActionSpec((6,), (-1.0,) * 6, (1.0,) * 6))  # HalfCheetah's sizes
Window = tuple[float, list[float]]  # wall time (s), and the durations (s) of the inserts made meanwhile


def make_block() -> Block:
    """One lane's 32 decisions."""
    rows = np.zeros(BLOCK, SPEC.row_dtype)
    rows["obs"][:, 0], rows["next_obs"][:, 0], rows["steps"] = np.arange(BLOCK), np.arange(1, BLOCK + 1), 1
    return Block(rows, {"obs": np.random.default_rng(0).standard_normal((BLOCK + 1, 17)).astype("<f4")})


def insert(pool: SACReplayPool, block: Block) -> None:
    """Append one block to the only stream."""
    pool.insert(block, "a", 1, pool.last_seq("a", 1) + 1)


def measure(directory: Path, rows: int, pairs: int) -> dict[str, Any]:
    """Windows alone, one more than snapshots, around ``pairs`` snapshots of a full pool of ``rows`` rows."""
    block, alone, beside = make_block(), list[Window](), list[Window]()
    with SACReplayPool(rows, path=directory / "pool", spec=SPEC, config=PoolConfig(min_block_rows=BLOCK)) as pool:
        for _ in range(rows // BLOCK + 100):
            insert(pool, block)
        pool.save(directory / "snapshots")  # the first makes files where later ones find some
        alone.append(_window(pool, block, FIRST_S))
        for _ in range(pairs):
            beside.append(_window(pool, block, directory / "snapshots"))
            alone.append(_window(pool, block, beside[-1][0]))
    usual = float(np.median([taken for _, found in alone for taken in found]))
    shares = {name: [stall(window, usual) for window in made] for name, made in (("alone", alone), ("beside", beside))}
    return {
        "rows": rows,
        "snapshot_s": round(float(np.median([wall for wall, _ in beside])), 3),
        "insert_ms": round(1e3 * usual, 4),
        "insert_ms_max": round(1e3 * max(max(found) for _, found in beside), 3),
        "insert_ms_max_alone": round(1e3 * max(max(found) for _, found in alone), 3),
        **{name: [round(share, 6) for share in found] for name, found in shares.items()},
    }


def stall(window: Window, usual: float) -> float:
    """Share of a window's wall time by which its inserts took longer than ``usual`` (s)."""
    wall, found = window
    return float(np.maximum(np.array(found) - usual, 0).sum()) / wall


def judge(trials: Sequence[tuple[Sequence[float], Sequence[float]]]) -> dict[str, Any]:
    """What snapshots add to the stall, from the stalls ``(alone, beside)`` of each trial, and whether that keeps the bar.

    ``interval`` is the 95 % interval of the mean. ``noise`` is by how much two neighbouring windows alone differ, on the mean.
    The bar is met where the whole interval and the noise are within it, and missed where the interval lies above it by more
    than the noise; elsewhere the machine is too noisy to tell.
    """
    added, changes = list[float](), list[float]()
    for alone, beside in trials:
        added += [b - (before + after) / 2 for b, (before, after) in zip(beside, itertools.pairwise(alone), strict=True)]
        changes += [abs(after - before) for before, after in itertools.pairwise(alone)]
    if not added:
        return {"pairs": 0, "added": 0.0, "interval": [0.0, 0.0], "noise": 0.0, "verdict": NOISY}
    low, high = (float(bound) for bound in mean_interval(added))
    noise = float(np.mean(changes))
    met = high <= MOST_STALL and noise <= MOST_STALL
    verdict = MET if met else MISSED if low - noise > MOST_STALL else NOISY
    figures = {"added": round(float(np.mean(added)), 6), "interval": [round(low, 6), round(high, 6)], "noise": round(noise, 6)}
    return {"pairs": len(added), **figures, "verdict": verdict}


def _window(pool: SACReplayPool, block: Block, what: float | Path) -> Window:
    """Inserts beside a snapshot into a directory, or beside a rest of so many seconds."""
    ended, found = threading.Event(), list[float]()
    thread = threading.Thread(target=lambda: found.extend(_paced(pool, block, ended)))
    begun = time.perf_counter()
    thread.start()
    try:
        if isinstance(what, Path):
            pool.save(what)
        else:
            time.sleep(what)
    finally:
        wall = time.perf_counter() - begun
        ended.set()
        thread.join()
    return wall, found


def _paced(pool: SACReplayPool, block: Block, ended: threading.Event) -> list[float]:
    """Durations (s) of inserts made at ``RATE`` until ``ended``, at least of one."""
    taken: list[float] = []
    begun = time.perf_counter()
    while not taken or not ended.wait(max(0.0, begun + len(taken) / RATE - time.perf_counter())):
        now = time.perf_counter()
        insert(pool, block)
        taken.append(time.perf_counter() - now)
    return taken
