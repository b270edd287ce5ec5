#!/usr/bin/env python
"""What handing one step over costs a robot's control loop: two cameras, 128 x 128 x 3 bytes each, at 50 Hz.

    .venv/bin/python benchmarks/record.py                        # every state of the network, a minute each
    .venv/bin/python benchmarks/record.py --only down --hz 200
    .venv/bin/python benchmarks/record.py --quick                # 3 seconds each, not recorded: a smoke run

What it measures: a session with a spool in this process, and a control loop that is paced by absolute deadlines. ``up``: a
buffer process takes what comes; ``stopped``: that process is stopped (SIGSTOP) at the beginning; ``down``: nobody listens. Of
each call of ``record`` (and of ``begin`` before an episode's first) its time, and of each period how late the loop woke up,
which is the machine's part and what the session's threads add to it. ``import`` is the time that ``import headrace.actor`` adds
to a Python that starts, the least of 9.

How long: a minute a state, 4 in all. Each finished one adds a line to docs/results/record.jsonl, and is not repeated on the
same commit.

The last line on stdout is one JSON object: state -> its figures in ms (p50, p99, max of ``record``, p99 and max of ``late``,
steps, and what became of them) and whether the bar is met: p99 of ``record`` below 1 ms and no thread that outlives the
session; import below 300 ms. Exit code 1: a bar is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from campaign import provenance, records
from campaign.choosing import add_only
from campaign.process import guarded

from headrace.actor import ActorConfig, NetworkConfig, Session, TransitionSpec
from headrace.buffer.config import PoolConfig
from headrace.buffer.pacing import PacingConfig
from headrace.buffer.server import serve
from headrace.buffer.settings import BufferSettings

FILE = records.RESULTS / "record.jsonl"
STATES = ("up", "stopped", "down", "import")
RECORD_MS, IMPORT_MS = 1.0, 300.0
EPISODE, LEAD_S, QUICK_S = 200, 1.0, 3.0
SPOOL_BYTES = 1 << 30
NETWORK = NetworkConfig(lease_s=2.0, heartbeat_s=0.2)
Record = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, STATES, "state")
    parser.add_argument("--hz", type=float, default=50.0, help="control periods a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each state")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_S:g} seconds each, not recorded")
    parser.add_argument("--place", type=Path, default=None, help="directory of spool and pool; default: a temporary one")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        pacing = PacingConfig(env_steps=0, hold_actors=False, hold_learner=False, random_steps=0)
        return serve(BufferSettings(NETWORK, PoolConfig(capacity=2048), args.serve, pacing, "record", 0, _say))
    origin = provenance.commit()
    known = {} if args.quick else records.latest(records.read(FILE), "state", "hz", "commit")
    out: dict[str, Record] = {}
    for state in args.only:
        found = known.get((state, args.hz, origin["commit"]))
        if found is None or origin["dirty"]:
            found = measure(state, args.hz, QUICK_S if args.quick else args.seconds, args.place)
            found |= {"state": state, "hz": args.hz, **origin, "machine": provenance.machine(), "date": provenance.stamp()}
            if not args.quick:
                records.append(FILE, found)
        print(f"{state}: " + ", ".join(f"{k} {v}" for k, v in found.items() if isinstance(v, (int, float))), flush=True)
        out[state] = found
    print(json.dumps(out))
    return 0 if all(found["passed"] for found in out.values()) else 1


def measure(state: str, hz: float, seconds: float, place: Path | None) -> Record:
    """The figures of one state."""
    if state == "import":
        return time_import()
    with tempfile.TemporaryDirectory(dir=place) as directory, buffer_process(state, Path(directory)) as buffer:
        endpoint, process = buffer
        return run_loop(state, hz, seconds, endpoint, process, Path(directory) / "spool")


def run_loop(state: str, hz: float, seconds: float, endpoint: str, buffer: Any, spool: Path) -> Record:
    """A control loop that does nothing but see and record."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (8, 128, 128, 3), np.uint8)
    spec = TransitionSpec.like({"front": images[0], "wrist": images[0], "joints": np.zeros(12, np.float32)}, [-1] * 6, [1] * 6)
    actor = ActorConfig(spool=str(spool), spool_bytes=SPOOL_BYTES, when_full="drop_oldest")
    before = threading.active_count()
    session = Session(endpoint, "arm-0", spec, actor=actor, network=NETWORK)
    if buffer is not None:
        session.wait_welcome(30)
    steps = int((seconds + LEAD_S) * hz)
    lead, stop_at = int(LEAD_S * hz), int(LEAD_S * hz / 2) if state == "stopped" else -1
    took, late = np.zeros(steps), np.zeros(steps)
    action, due = np.zeros(6, np.float32), time.monotonic()
    for n in range(steps):
        due += 1 / hz
        time.sleep(max(0.0, due - time.monotonic()))
        late[n] = time.monotonic() - due
        obs = {"front": images[n % 8], "wrist": images[-n % 8], "joints": np.full(12, n, np.float32)}
        begun = time.perf_counter()
        if n % EPISODE == 0:
            session.begin(obs)
        session.record(obs, action, 0.0, n % EPISODE == EPISODE - 1, False)
        took[n] = time.perf_counter() - begun
        if n == stop_at:
            buffer.send_signal(signal.SIGSTOP)
    if stop_at >= 0:
        buffer.send_signal(signal.SIGCONT)
    counts, took, late = session.close(), took[lead:] * 1e3, late[lead:] * 1e3
    left = threading.active_count() - before
    figures = {
        "p50": round(float(np.quantile(took, 0.5)), 4),
        "p99": round(float(np.quantile(took, 0.99)), 4),
        "max": round(float(took.max()), 4),
        "late_p99": round(float(np.quantile(late, 0.99)), 4),
        "late_max": round(float(late.max()), 4),
        "steps": len(took),
        "threads_left": left,
        "counts": vars(counts),
    }
    return {**figures, "passed": figures["p99"] < RECORD_MS and left == 0}


def time_import() -> Record:
    """What the client's import adds to the start of Python, in ms."""
    plain, whole = (min(_start(code) for _ in range(9)) for code in ("pass", "import headrace.actor"))
    added = round(1e3 * (whole - plain), 1)
    return {"added": added, "passed": added < IMPORT_MS}


def _start(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begun


@contextlib.contextmanager
def buffer_process(state: str, directory: Path) -> Iterator[tuple[str, Any]]:
    """Endpoint and process of a buffer; in ``down`` a port where nobody listens, and none."""
    if state == "down":
        yield "tcp://127.0.0.1:9", None  # the discard port: nobody serves it any more
        return
    words = [sys.executable, __file__, "--serve", str(directory / "pool")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else "", process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def _say(endpoint: str) -> None:
    print(endpoint, flush=True)


if __name__ == "__main__":
    sys.exit(guarded(main))
