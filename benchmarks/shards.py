#!/usr/bin/env python
"""Two buffers in one run beside one, on this machine: rows in, batches out, and where the rows of batches come from.

    .venv/bin/python benchmarks/shards.py                 # three rounds; about 3 minutes
    .venv/bin/python benchmarks/shards.py --quick         # seconds long, not recorded: a smoke run

What it measures, in interleaved rounds, with rows of HalfCheetah's size (17 and 6 float32) in blocks of 32, no env and no
arithmetic:
- ``rows_s``: rows that two actors get acknowledged in a second, both at one buffer, or one at each of two.
- ``batches_s``: batches of 256 rows that a learner takes in a second through the socket, of one buffer, or put together of two
  that are unevenly full; and with their files mapped.
- ``raw_rows_s``, ``raw_batches_s``: as many bytes a message through ZeroMQ alone, from one process to another.
- ``chi_square``: over all batches, of rows by shard against the live rows there. Bar: not above the 99.9 % quantile for one
  degree of freedom, 10.83.

Two buffers on one machine share its cores: what they bring shows only where cores are left, and what they cost shows on any.
One run adds one line to docs/results/shards.jsonl. The last line on stdout is one JSON object: the medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from campaign import provenance, records
from campaign.process import guarded
from speed import limits

from headrace.actor.outbox import Outbox
from headrace.actor.store import Memory
from headrace.actor.uplink import Uplink
from headrace.buffer.config import PoolConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings
from headrace.buffer.view import PoolView
from headrace.common.block import Block
from headrace.common.clock import MonotonicClock
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.staging import batch_nbytes
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig
from headrace.learner.reach import Asks, Reach

FILE = records.RESULTS / "shards.jsonl"
SPEC = TransitionSpec((ObsSpec("obs", (17,), "<f4"),), ActionSpec((6,), (-1.0,) * 6, (1.0,) * 6))
ROWS, BATCH = 32, 256
UNEVEN = (48_000, 16_000)  # rows of the two shards that a learner reads
CAPACITY = 100_000
LARGEST_CHI_SQUARE = 10.83
WAIT_S = 120.0
NETWORK = NetworkConfig(heartbeat_s=0.1, lease_s=10.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds (count)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="length of a window (float, s)")
    parser.add_argument("--quick", action="store_true", help="one short round, not recorded")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        options = json.loads(args.child)
        return {"buffer": buffer, "actor": actor}[options.pop("role")](**options)
    origin = provenance.commit()
    rounds, seconds = (1, 0.5) if args.quick else (args.rounds, args.seconds)
    found = [measure(seconds) for _ in range(rounds)]
    figures: dict[str, Any] = {name: round(statistics.median(f[name] for f in found), 1) for name in found[0]}
    drawn, expected = (sum(f[name] for f in found) for name in ("from_second", "expected_second"))
    total = sum(f["drawn"] for f in found)
    figures["chi_square"] = round((drawn - expected) ** 2 * (1 / expected + 1 / (total - expected)), 3)
    figures["passed"] = figures["chi_square"] <= LARGEST_CHI_SQUARE
    if not args.quick:
        about = {"rounds": rounds, "seconds": seconds, "machine": provenance.machine(), "date": provenance.stamp()}
        records.append(FILE, {**figures, **about, **origin})
    print(json.dumps(figures))
    return 0 if figures["passed"] else 1


def measure(seconds: float) -> dict[str, float]:
    """One round."""
    out: dict[str, float] = {}
    for shards in (1, 2):
        with buffers(shards) as endpoints:
            out[f"rows_s_{shards}"] = inserted(endpoints, seconds)
        with buffers(shards) as endpoints:
            full = UNEVEN if shards == 2 else (sum(UNEVEN),)
            fill(endpoints, full)
            for reading in ("socket", "mapped"):
                taken, drawn = batches(endpoints, reading, seconds)
                out[f"batches_s_{shards}_{reading}"] = taken
                if shards == 2:
                    out["drawn"] = out.get("drawn", 0) + sum(drawn)
                    out["from_second"] = out.get("from_second", 0) + drawn[1]
    out["expected_second"] = out["drawn"] * UNEVEN[1] / sum(UNEVEN)
    block = sum(len(part) for part in (made(0).rows.tobytes(), made(0).frames["obs"].tobytes()))
    out["raw_rows_s"] = ROWS * limits.push({"size": block})(seconds)["rate"]
    out["raw_batches_s"] = limits.push({"size": batch_nbytes(SPEC, BATCH)})(seconds)["rate"]
    return out


def inserted(endpoints: list[str], seconds: float) -> float:
    """Rows a second of two actors."""
    begun = [child("actor", endpoint=endpoints[n % len(endpoints)], name=f"actor-{n}", seconds=seconds) for n in range(2)]
    return sum(float(line(process)) for process in begun)


def fill(endpoints: list[str], rows: tuple[int, ...]) -> None:
    """So many rows for each buffer."""
    begun = [
        child("actor", endpoint=e, name=f"actor-{n}", rows=r) for n, (e, r) in enumerate(zip(endpoints, rows, strict=True))
    ]
    for process in begun:
        line(process)


def batches(endpoints: list[str], reading: str, seconds: float) -> tuple[float, list[int]]:
    """Batches a second, and how many of their rows came of each buffer."""
    asks = Asks(tuple(endpoints), "learner", 0, BATCH, 32, NETWORK, int.from_bytes(os.urandom(3)), False, reading, PoolView)
    reach = Reach(asks, MonotonicClock())
    reach.start()
    try:
        reach.link.wait_welcome(WAIT_S)
        reach.feed.start_drawing()
        begun, taken = 0.0, 0
        end = time.monotonic() + WAIT_S
        while (now := time.monotonic()) < end:
            reach.check()
            got = reach.feed.get(0.05)
            if reach.feed.must_draw:
                reach.wake()
            if got is None:
                continue
            if begun:
                taken += 1
            else:
                begun, end = now, now + seconds
    finally:
        reach.close(Goodbye(False))
    return taken / seconds, list(getattr(reach.feed, "rows", [0]))


@contextlib.contextmanager
def buffers(shards: int) -> Iterator[list[str]]:
    """Where so many buffers of one run listen, the home shard first."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        endpoints: list[str] = []
        for number in range(shards):
            process = child("buffer", place=f"{place}/{number}", shard=number, home=endpoints[0] if number else "")
            stack.callback(process.wait)
            stack.callback(process.terminate)
            endpoints.append(line(process))
        yield endpoints


def buffer(place: str, shard: int, home: str) -> int:
    """A buffer that holds nobody."""
    pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False, min_fill=BATCH, lead_steps=1 << 20)
    pool = PoolConfig(capacity=CAPACITY)
    return serve(BufferSettings(NETWORK, pool, Path(place), pacing, "shards", 0, tell, shard=shard, home=home))


def actor(endpoint: str, name: str, seconds: float = 0.0, rows: int = 0) -> int:
    """Send blocks for ``seconds`` behind as many of warming up, or ``rows`` rows; tells the rows a second, or their number."""
    uplink = Uplink(SPEC, Outbox(Memory(8 << 20)), NETWORK.fragment_bytes)
    link = Link(new_hello("actor", name, spec=SPEC.to_dict(), robot=True), uplink, endpoint, NETWORK, MonotonicClock())
    link.start()
    link.wait_welcome(WAIT_S)
    blocks, sent, begun = cycle([made(n) for n in range(64)]), 0, time.monotonic()
    mark: tuple[float, int] | None = None
    while (now := time.monotonic()) < begun + (2 * seconds if seconds else WAIT_S) and not (rows and sent >= rows):
        if uplink.offer(next(blocks), 0.05):
            uplink.executed(ROWS)
            sent += ROWS
            link.wake()
        link.check()
        executed, pending = uplink.position()
        if mark is None and seconds and now >= begun + seconds:
            mark = now, executed - pending
    executed, pending = uplink.position()
    told = float(sent) if mark is None else (executed - pending - mark[1]) / (time.monotonic() - mark[0])
    while rows and uplink.unacknowledged:
        uplink.wait(0.05)
        link.check()
    link.close(Goodbye(False))
    tell(str(told))
    return 0


def made(number: int) -> Block:
    """A block of 32 random decisions of one episode."""
    rng = np.random.default_rng(number)
    rows = np.zeros(ROWS, SPEC.row_dtype)
    rows["obs"][:, 0], rows["next_obs"][:, 0] = np.arange(ROWS), np.arange(1, ROWS + 1)
    rows["t"], rows["steps"], rows["episode"] = np.arange(ROWS), 1, number
    rows["action"] = rng.uniform(-1, 1, (ROWS, 6))
    return Block(rows, {"obs": rng.standard_normal((ROWS + 1, 17)).astype("<f4")})


def child(role: str, **options: Any) -> subprocess.Popen[str]:
    """A process of this file."""
    words = [sys.executable, __file__, "--child", json.dumps({"role": role, **options})]
    environment: Mapping[str, str] = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)


def line(process: subprocess.Popen[str]) -> str:
    """What it says next."""
    said = process.stdout.readline().strip() if process.stdout else ""
    if not said:
        raise RuntimeError(f"a process of the benchmark has ended with {process.wait()}")
    return said


def tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(guarded(main))
