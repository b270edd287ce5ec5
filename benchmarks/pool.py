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

from campaign import records
from campaign.choosing import add_only
from campaign.process import guarded
from speed.measuring import add_place, find_pythons, measure_rows
from speed.rows import Setup
from speed.table import TABLE

FILE = records.RESULTS / "pool.jsonl"
PEERS = ("reverb", "cpprb", "ray")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, TABLE, "row")
    parser.add_argument("--quick", action="store_true", help="short windows and small pools, not recorded: a smoke run")
    parser.add_argument("--minutes", type=float, default=1.0, help="length of the memory row (minutes)")
    add_place(parser)
    args = parser.parse_args()
    pythons = find_pythons(os.environ.get("PEERS_VENVS", ""), PEERS)
    for peer in (peer for peer in PEERS if peer not in pythons):
        print(f"{peer} is not measured: no environment for it in PEERS_VENVS", flush=True)
    setup = Setup(args.place, pythons, args.quick, 0.0 if args.quick else args.minutes)
    out = measure_rows(TABLE, args.only, setup, FILE)
    print(json.dumps(out))
    return 0 if all(check["met"] for record in out.values() for check in record["checks"]) else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
