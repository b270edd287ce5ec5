#!/usr/bin/env python
"""Torn rows: does a process that samples from the mapped files ever get a row that is a mixture of two?

    .venv/bin/python benchmarks/torn.py                  # ten trials of 100,000 rows
    .venv/bin/python benchmarks/torn.py --quick          # one of 20,000, not recorded
    .venv/bin/python benchmarks/torn.py --selftest       # only: is a reader found out that does not look at the tail?

What it measures: one process owns a pool of 64 rows and inserts rows of 64 KB from 4 threads as fast as it can, so that the
whole pool is written over every few milliseconds; this process maps the files and samples. Each row proves itself.

Before any trial a reader samples that does not look at the tail after its gather. It must get mixed rows, or the trials prove
nothing and the campaign does not start.

How long: about two minutes, on a busy machine many more. Each trial adds one line to docs/results/torn.jsonl. One that passed
is not repeated; a failed one only on another commit, so that failures are not tried away.

The last line on stdout is one JSON object: trials and failures, rows returned as good, mixed rows among them, rows reported as
bad, and rows written meanwhile. Exit code 0: a million rows, none mixed.
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

from campaign import pool_tables, provenance, records, tearing
from campaign.pool_tables import ROWS, TORN
from campaign.process import ProcessFailed, guarded

from headrace.buffer.view import PoolView
from headrace.common.errors import PoolError

FILE = records.RESULTS / TORN.file
QUICK = 20_000
START_S, DEADLINE_S = 300.0, 900.0
TIMES = 10  # the pool must be written over at least so often, or nothing was tried


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"one trial of {QUICK:,} rows, not recorded")
    parser.add_argument("--selftest", action="store_true", help="sample without the look at the tail, and exit")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        tearing.write(args.write, START_S + DEADLINE_S)
        return 0
    blind = measure(ROWS, DEADLINE_S, tearing.BlindView)
    print(f"without the look at the tail: {blind['mixed']} of {blind['rows']} rows are mixed", flush=True)
    if args.selftest or not blind["mixed"]:
        print(json.dumps({"selftest": "passed" if blind["mixed"] else "FAILED"}))
        return 0 if blind["mixed"] else 1
    return campaign(args.quick)


def campaign(quick: bool) -> int:
    """Every trial that is to do, and the verdict."""
    origin = {**provenance.commit(), "machine": provenance.machine()}
    known = [] if quick else records.read(FILE)
    plan = [(n,) for n in range(1 if quick else TORN.trials)]
    todo = records.unpassed(plan, known, origin["commit"], *TORN.keys)
    print(f"{len(todo)} trials to do", flush=True)
    for number, (trial,) in enumerate(todo, 1):
        record = {"trial": trial, **judged(QUICK if quick else ROWS), "date": provenance.stamp(), **origin}
        known.append(record)
        if not quick:
            records.append(FILE, record)
        print(f"[{number}/{len(todo)}] {line(record)}", flush=True)
    summary = pool_tables.sum_torn(known)
    print(json.dumps(summary))
    return 0 if summary["trials"] == len(plan) and not summary["failures"] else 1


def judged(rows: int) -> records.Record:
    """One trial."""
    found = measure(rows, DEADLINE_S, PoolView)
    problems = [
        *([f"{found['mixed']} rows are mixed"] if found["mixed"] else []),
        *([f"{found['rows']} of {rows} rows within {DEADLINE_S:g} s"] if found["rows"] < rows else []),
        *([f"only {found['written']} rows were written meanwhile"] if found["written"] < TIMES * tearing.CAPACITY else []),
    ]
    return {**found, "problems": problems, "passed": not problems}


def measure(rows: int, seconds: float, kind: type[PoolView]) -> dict[str, float]:
    """Sample ``rows`` good rows beside a writing process; the counts.

    Raises:
        ProcessFailed: there is no pool, or the writer ended meanwhile.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        words = [sys.executable, __file__, "--write", directory]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as writer:
            try:
                view = opened(Path(directory), kind, writer)
                first = view.head
                found = tearing.read(view, rows, seconds)
                written = view.head - first
                if writer.poll() is not None:
                    raise ProcessFailed(f"the writer ended with {writer.returncode} while its rows were sampled")
            finally:
                writer.kill()
    return {**asdict(found), "seconds": round(found.seconds, 1), "written": written}


def opened(directory: Path, kind: type[PoolView], writer: subprocess.Popen[bytes]) -> PoolView:
    """A view of the pool, once the writer has made it."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and writer.poll() is None:
        try:
            return kind(directory)
        except PoolError:  # not there yet, or half made
            pass
        time.sleep(0.05)
    raise ProcessFailed(f"the writer did not make its pool within {START_S:g} s, or ended ({writer.poll()})")


def line(record: records.Record) -> str:
    """A trial in one line."""
    verdict = "passed" if record["passed"] else f"FAILED: {' | '.join(record['problems'])}"
    counts = f"{record['rows']} rows, {record['mixed']} mixed, {record['bad']} reported as bad, {record['written']} written"
    return f"{record['trial']}: {verdict}; {counts}, {record['seconds']} s"


if __name__ == "__main__":
    sys.exit(guarded(main))
