#!/usr/bin/env python
"""The learner's speed on a CPU, row by row of its table, beside other libraries and the machine's own rate of products.

    PEERS_VENVS=DIR .venv/bin/python benchmarks/learner.py             # every row; without DIR, without the libraries
    .venv/bin/python benchmarks/learner.py --only update-1,publish
    .venv/bin/python benchmarks/learner.py --quick                     # short windows and small pools, not recorded

DIR holds a virtual environment a library: ``sb3`` and ``sbx``, with torch==2.13.0 and stable-baselines3 or sbx-rl in them.
Nothing of them is a dependency of headrace.

Rows, in ``speed/learning_table.py``: ``update-1`` and ``update-2`` (updates/s with 1 and 2 processes or threads, in
float32 and, where the processor multiplies it, bfloat16), ``waiting`` (a learner without a batch), ``publish`` (what publishing
takes of training), ``ranks`` and ``ranks-losses`` (2 ranks over gloo beside 1).

How it measures: a buffer process with a filled pool for each learner, from which it draws as in a run; each library trains in
bursts of the length that is fastest for it on a filled buffer of its own. All are started first and measured in turn in
windows of one length, and the order turns from round to round, so that whatever else runs on the machine meets all of them. A
ratio is the median over rounds of ours / theirs of the same round. For each learner the parts of an update are told in ms:
``products`` (its matrix products alone, at their own shapes), the rest of its passes (elementwise work, rounding, meeting its
crew), ``optimisers`` (Adam, temperature, target), ``sample`` (columns to tensors), ``data`` (taking the batch), and all else
(metrics, guards, Python).

How long: 7 minutes in all with both libraries (2 the first two rows, 1 each other), 1 with ``--quick``. A finished row adds one
line to docs/results/learner.jsonl; benchmarks/report.py makes the table.

The last line on stdout is one JSON object: ``rows`` (row -> ``figures``: median, low and high of each that took part;
``checks``: ratios with their targets, spread, and whether they are met; ``parts``; ``peers``: versions) and ``passed``.
Exit code 1: a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from campaign import records
from campaign.choosing import add_only
from campaign.process import guarded
from speed.learning_table import PEERS, TABLE
from speed.measuring import add_place, find_pythons, measure_rows
from speed.rows import Setup

FILE = records.RESULTS / "learner.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, TABLE, "row")
    parser.add_argument("--quick", action="store_true", help="short windows and small pools, not recorded: a smoke run")
    add_place(parser)
    args = parser.parse_args()
    setup = Setup(args.place, find_pythons(os.environ.get("PEERS_VENVS", ""), PEERS), args.quick, 0.0)
    out = measure_rows(TABLE, args.only, setup, FILE)
    passed = all(check["met"] for record in out.values() for check in record["checks"])
    print(json.dumps({"rows": out, "passed": passed}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(guarded(main))
