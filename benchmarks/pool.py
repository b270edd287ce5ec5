#!/usr/bin/env python
"""The pool's speed, row by row of its table: each beside the limits of this machine and the libraries it is to beat.

    .venv/bin/python benchmarks/pool.py                                # every row, beside the limits
    PEERS_VENVS=DIR .venv/bin/python benchmarks/pool.py                # beside the libraries whose environments are there too
    .venv/bin/python benchmarks/pool.py --only insert-32,sample
    .venv/bin/python benchmarks/pool.py --quick                        # short windows and small pools, not recorded
    .venv/bin/python benchmarks/pool.py --only memory --minutes 60

DIR holds a virtual environment a library: ``reverb`` (dm-reverb==0.14.0 tensorflow-cpu==2.15.1 "numpy<2"), ``cpprb``, ``ray``.
Nothing of them is a dependency of headrace.

How it measures: all that takes part in a row is started first (buffer, actors, learner and peers are processes of their own),
then measured in turn in windows of one length, and the order turns from round to round, so that whatever else runs on the
machine meets all of them. A ratio is the median over rounds of ours / theirs of the same round; spreads are lowest and highest.
Rows and bars stand in ``speed/table.py``. ``--place`` is where pools lie.

How long: 20 s to 2 minutes a row, 15 minutes in all, and the memory row as long as ``--minutes`` says. A finished row adds one
line to docs/results/pool.jsonl; benchmarks/report.py makes the table.

The last line on stdout is one JSON object: row -> ``figures`` (median, low and high of each that took part), ``checks`` (what
is asked: the value with its spread, the bar, whether it is met) and ``peers`` (their versions). Exit code 1: a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from campaign import provenance, records
from campaign.choosing import add_only
from campaign.process import guarded
from speed.children import Child
from speed.rows import Row, Setup, Subject, digits, figures, judge
from speed.table import TABLE

FILE = records.RESULTS / "pool.jsonl"
PEERS = ("reverb", "cpprb", "ray")
ROUNDS, WINDOW_S = 5, 1.0
QUICK_ROUNDS, QUICK_S = 3, 0.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, TABLE, "row")
    parser.add_argument("--quick", action="store_true", help="short windows and small pools, not recorded: a smoke run")
    parser.add_argument("--minutes", type=float, default=1.0, help="length of the memory row (minutes)")
    parser.add_argument("--place", type=Path, default=None, help="directory for pools; default: shared memory, if there is any")
    args = parser.parse_args()
    memory = Path("/dev/shm")
    where = args.place or (memory if memory.is_dir() else Path(tempfile.gettempdir()))
    setup = Setup(where, find_pythons(os.environ.get("PEERS_VENVS", "")), args.quick, 0.0 if args.quick else args.minutes)
    out = {}
    for name in args.only:
        record = measure(TABLE[name], setup)
        if not args.quick:
            origin = {"date": provenance.stamp(), **provenance.commit(), "machine": provenance.machine()}
            records.append(FILE, {"row": name, **record, **origin})
        out[name] = record
    print(json.dumps(out))
    return 0 if all(check["met"] for record in out.values() for check in record["checks"]) else 1


def find_pythons(place: str) -> dict[str, Path]:
    """The interpreter of each peer that is below ``place``."""
    found = {peer: Path(place) / peer / "bin" / "python" for peer in PEERS} if place else {}
    return {peer: python for peer, python in found.items() if python.exists()}


def measure(row: Row, setup: Setup) -> records.Record:
    """One row: start everything, measure in turn, judge."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_S) if setup.quick else (ROUNDS, WINDOW_S)
    print(f"{row.name}: {row.title}", flush=True)
    with ExitStack() as stack:
        subjects = row.open(setup, stack)
        versions = {k: v for s in subjects.values() if isinstance(s, Child) for k, v in s.ready.items()}
        rates = windows(subjects, rounds, seconds)
    found = figures(rates)
    for name, f in found.items():
        print(f"  {name:<32} {f['median']:>14,.6g} {row.unit}  ({f['low']:,.6g} to {f['high']:,.6g})", flush=True)
    checks = judge(row, rates)
    for c in checks:
        state = "met" if c["met"] else "MISSED"
        print(f"  {c['what']}: {c['value']:g} ({c['low']:g} to {c['high']:g}), bar {c['bar']}: {state}", flush=True)
    return {"rounds": rounds, "window_s": digits(seconds), "figures": found, "checks": checks, "peers": versions}


def windows(subjects: dict[str, Subject], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Rates of each subject, round by round, after one short window each that warms it up."""
    names = list(subjects)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        subjects[name].window(seconds / 2)
    for r in range(rounds):
        shift = r % len(names)
        for name in [*names[shift:], *names[:shift]]:
            rates[name].append(subjects[name].window(seconds))
        print(f"  round {r + 1} of {rounds}", flush=True)
    return rates


if __name__ == "__main__":
    sys.exit(guarded(main))
