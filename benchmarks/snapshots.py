#!/usr/bin/env python
"""What a snapshot costs those who insert meanwhile, and what each level of acknowledgement costs.

    .venv/bin/python benchmarks/snapshots.py             # a million rows, about 1 minute
    .venv/bin/python benchmarks/snapshots.py --quick     # a tenth of them, a few seconds

One thread inserts blocks of 32 HalfCheetah-sized rows at a fixed rate into a full pool, first alone, then while a snapshot is
written. Its stall is the share of wall time by which inserts took longer than the median insert that was made alone; a snapshot
may add 1 % to it. Then blocks are inserted and acknowledged flat out at both levels, with one sync for each 8 blocks. Other
work on the machine counts as stall too.

The last line on stdout is one JSON object with every figure. Exit code 1: the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from headrace.buffer import PoolConfig, SACReplayPool
from headrace.common.block import Block
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec

BLOCK, RATE, ALONE_S, ROUND, SYNC_S = 32, 200.0, 3.0, 8, 3.0
MOST_STALL = 0.01
TOLD = {
    "rows": "rows in the snapshot",
    "snapshot_s": "seconds that it took, median",
    "stall": "share of wall time that inserts stalled beside it, median",
    "stall_alone": "the same without a snapshot",
    "insert_ms": "ms an insert, median, alone",
    "insert_ms_max": "longest beside a snapshot",
    "insert_ms_max_alone": "longest alone",
    "rows_per_s_memory": "rows/s acknowledged, level memory",
    "rows_per_s_synced": "rows/s acknowledged, level synced",
}
SPEC = TransitionSpec((ObsSpec("obs", (17,), "<f4"),), ActionSpec((6,), (-1.0,) * 6, (1.0,) * 6))


def make_block() -> Block:
    """One lane's 32 decisions."""
    rows = np.zeros(BLOCK, SPEC.row_dtype)
    rows["obs"][:, 0], rows["next_obs"][:, 0], rows["steps"] = np.arange(BLOCK), np.arange(1, BLOCK + 1), 1
    return Block(rows, {"obs": np.random.default_rng(0).standard_normal((BLOCK + 1, 17)).astype("<f4")})


def insert(pool: SACReplayPool, block: Block) -> None:
    """Append one block to the only stream."""
    pool.insert(block, "a", 1, pool.last_seq("a", 1) + 1)


def paced(pool: SACReplayPool, block: Block, ended: threading.Event) -> list[float]:
    """Durations (s) of inserts made at ``RATE`` until ``ended``."""
    taken: list[float] = []
    begun = time.perf_counter()
    while not ended.wait(max(0.0, begun + len(taken) / RATE - time.perf_counter())):
        now = time.perf_counter()
        insert(pool, block)
        taken.append(time.perf_counter() - now)
    return taken


def beside(pool: SACReplayPool, block: Block, where: Path | None) -> tuple[float, list[float]]:
    """Wall time (s) of a snapshot, or of a rest without one, and the durations of the inserts made meanwhile."""
    ended, found = threading.Event(), list[float]()
    thread = threading.Thread(target=lambda: found.extend(paced(pool, block, ended)))
    begun = time.perf_counter()
    thread.start()
    try:
        if where is None:
            time.sleep(ALONE_S)
        else:
            pool.save(where)
    finally:
        wall = time.perf_counter() - begun
        ended.set()
        thread.join()
    return wall, found


def snapshots(directory: Path, rows: int, repeats: int) -> dict[str, float]:
    """Figures of a snapshot of ``rows`` rows."""
    block = make_block()
    with SACReplayPool(rows, path=directory / "pool", spec=SPEC, config=PoolConfig(min_block_rows=BLOCK)) as pool:
        for _ in range(rows // BLOCK + 100):
            insert(pool, block)
        alone_s, alone = beside(pool, block, None)
        usual = float(np.median(alone))
        trials = [beside(pool, block, directory / "snapshots") for _ in range(repeats)]
    stalls = [float(np.maximum(np.array(found) - usual, 0).sum()) / wall for wall, found in trials]
    return {
        "rows": rows,
        "snapshot_s": float(np.median([wall for wall, _ in trials])),
        "stall": float(np.median(stalls)),
        "stall_alone": float(np.maximum(np.array(alone) - usual, 0).sum()) / alone_s,
        "insert_ms": 1e3 * usual,
        "insert_ms_max": 1e3 * max(max(found) for _, found in trials),
        "insert_ms_max_alone": 1e3 * max(alone),
    }


def acknowledged(directory: Path, ack: str) -> float:
    """Rows a second that are inserted and acknowledged at one level."""
    block = make_block()
    config = PoolConfig(min_block_rows=BLOCK, ack=ack)
    with SACReplayPool(50_000, path=directory / ack, spec=SPEC, config=config) as pool:
        begun, rows = time.perf_counter(), 0
        while time.perf_counter() < begun + SYNC_S:
            for _ in range(ROUND):
                insert(pool, block)
            pool.sync()
            rows += ROUND * BLOCK
        return rows / (time.perf_counter() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the pool (count)")
    parser.add_argument("--dir", type=Path, help="where the pool lies; a temporary directory without it (path)")
    parser.add_argument("--repeats", type=int, default=5, help="snapshots (count)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, 2 snapshots")
    args = parser.parse_args()
    rows, repeats = (args.rows // 10, 2) if args.quick else (args.rows, args.repeats)
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        figures = snapshots(Path(name), rows, repeats)
        figures |= {f"rows_per_s_{ack}": acknowledged(Path(name), ack) for ack in ("memory", "synced")}
    for key, text in TOLD.items():
        print(f"{text:<60}{figures[key]:.6g}")
    met = figures["stall"] - figures["stall_alone"] <= MOST_STALL
    print(f"added by a snapshot, at most {MOST_STALL:g}: {'met' if met else 'MISSED'}")
    print(json.dumps(figures))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
