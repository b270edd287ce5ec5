"""Rows of 64 KB that prove themselves, threads that write them flat out, and a mapped reader that looks for mixtures.

Every 8 bytes of a frame hold its number, a row holds the numbers of its two frames, and no two rows share them. So a row
whose copy began before another took its slots, or any of its frames' slots, and ended after it, is found.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.buffer import PoolConfig, SACReplayPool
from headrace.buffer.view import PoolView
from headrace.common.batch import Batch
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
FRAME_BYTES = 64 << 10
SPEC = TransitionSpec((ObsSpec("frame", (FRAME_BYTES,), "|u1"),), ActionSpec((1,), (-1.0,), (1.0,)))
CAPACITY = 64
WRITERS = 4
BLOCK_ROWS = 4
BATCH = 16
MOST = 100


class BlindView(PoolView):
    """The planted fault: a reader that does not look at the tail after its gather."""

    def gather(self, ids: Array, out: Batch | None = None) -> tuple[Batch, Array]:
        """Every row is called good."""
        batch, _ = super().gather(ids, out)
        return batch, np.zeros(len(ids), bool)


@dataclass(frozen=True)
class Found:
    """What a reader saw: rows returned as good, those of them that were mixed, and rows reported as bad."""

    rows: int
    mixed: int
    bad: int
    seconds: float


def block(first: int, rows: int) -> Block:
    """Rows whose frames are numbered from ``first`` on."""
    made = np.zeros(rows, SPEC.row_dtype)
    made["steps"] = 1
    made["obs"][:, 0], made["next_obs"][:, 0] = np.arange(rows), np.arange(1, rows + 1)
    made["episode"] = np.arange(first, first + rows)
    numbers = np.repeat(np.arange(first, first + rows + 1, dtype="<u8"), FRAME_BYTES // 8)
    return Block(made, {"frame": numbers.view(np.uint8).reshape(rows + 1, FRAME_BYTES)})


def mixed(batch: Batch) -> int:
    """Rows that are not one row with its own two frames."""
    numbers = batch.rows["episode"].astype("<u8")[:, None]
    obs, following = (side["frame"].view("<u8") for side in (batch.obs, batch.next_obs))
    whole = (obs == numbers).all(axis=1) & (following == numbers + 1).all(axis=1)
    return int((~whole).sum())


def write(directory: Path, seconds: float) -> int:
    """Own a pool of ``CAPACITY`` rows and insert from ``WRITERS`` threads for ``seconds``; the rows written."""
    config = PoolConfig(max_block_rows=BLOCK_ROWS, min_block_rows=BLOCK_ROWS)
    end = time.monotonic() + seconds
    with SACReplayPool(CAPACITY, path=directory, spec=SPEC, config=config) as pool:

        def insert(writer: int) -> None:
            seq = 1
            while time.monotonic() < end:
                pool.insert(block((writer << 40) + 2 * seq, BLOCK_ROWS), f"writer-{writer}", 1, seq)
                seq += BLOCK_ROWS

        threads = [threading.Thread(target=insert, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return pool.head


def read(view: PoolView, rows: int, seconds: float) -> Found:
    """Sample uniformly from the mapped files until ``rows`` good rows or 100 mixed ones were seen, or ``seconds`` are over."""
    rng, out = np.random.default_rng(0), view.staging(BATCH)
    good = torn = stale = 0
    begun = time.monotonic()
    while good < rows and torn < MOST and time.monotonic() - begun < seconds:
        tail, head = view.tail, view.head
        if head - tail < BATCH:
            continue
        batch, bad = view.gather(rng.integers(tail, head, BATCH), out)
        stale += int(bad.sum())
        batch = batch[~bad] if bad.any() else batch
        good += len(batch)
        torn += mixed(batch)
    return Found(good, torn, stale, time.monotonic() - begun)
