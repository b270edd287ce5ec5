#!/usr/bin/env python
"""Torn rows: does a process that samples from the mapped files ever get a row that is a mixture of two?

    .venv/bin/python benchmarks/torn.py                  # a million rows
    .venv/bin/python benchmarks/torn.py --quick          # 20,000
    .venv/bin/python benchmarks/torn.py --blind          # the planted fault: no look at the tail after the gather

What it measures: one process owns a pool of 64 rows and inserts rows of 64 KB from 4 threads as fast as it can, so that the
whole pool is written over every few milliseconds; this process maps the files and samples. Each row proves itself.

How long: about two minutes. With --blind it must find mixed rows, or the test proves nothing.

The last line on stdout is one JSON object: rows returned as good, mixed rows among them, rows reported as bad, rows written,
seconds. Exit code 0: a million rows, none mixed (with --blind: some mixed).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from campaign import tearing

from headrace.buffer.view import PoolView
from headrace.common.errors import PoolError

START_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 rows")
    parser.add_argument("--rows", type=int, default=1_000_000, help="good rows to sample")
    parser.add_argument("--seconds", type=float, default=600.0, help="give up after this")
    parser.add_argument("--blind", action="store_true", help="sample without the look at the tail")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        print(tearing.write(args.write, args.seconds))
        return 0
    found = measure(20_000 if args.quick else args.rows, args.seconds, tearing.BlindView if args.blind else PoolView)
    print(json.dumps(found))
    return 0 if (found["mixed"] > 0) == args.blind and (args.blind or found["complete"]) else 1


def measure(rows: int, seconds: float, kind: type[PoolView]) -> dict[str, float]:
    """Sample ``rows`` good rows beside a writing process; the counts."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        words = [sys.executable, __file__, "--write", directory, "--seconds", str(seconds + START_S)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as writer:
            try:
                view = opened(Path(directory), kind, writer)
                first = view.head
                found = tearing.read(view, rows, seconds)
                written = view.head - first
            finally:
                writer.kill()
    return {**asdict(found), "written": written, "complete": found.rows >= rows}


def opened(directory: Path, kind: type[PoolView], writer: subprocess.Popen[bytes]) -> PoolView:
    """A view of the pool, once the writer has made it."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and writer.poll() is None:
        try:
            return kind(directory)
        except PoolError:  # not there yet, or half made
            pass
        time.sleep(0.05)
    raise RuntimeError("the writer did not make its pool")


if __name__ == "__main__":
    sys.exit(main())
