#!/usr/bin/env python
"""What keys cost: rows to a buffer and batches from it, with CURVE and without, over TCP on one host.

    .venv/bin/python benchmarks/curve.py                      # every row of the table
    .venv/bin/python benchmarks/curve.py --only rows,batches
    .venv/bin/python benchmarks/curve.py --quick              # short windows, not recorded

How it measures: a buffer with keys and one without, each with one client (an actor that sends blocks of 32 rows as fast as
they are acknowledged, or a learner that takes batches through the socket), are started first and measured in turn in windows
of one length, and the order turns from round to round. A ratio is the median over rounds of keys / plain of the same round.
Processor time is that of buffer and client together. The table is ``speed/curve_table.py``.

How long: about a minute a row. A finished row adds one line to docs/results/curve.jsonl; benchmarks/report.py makes the table.

The last line on stdout is one JSON object: row -> ``figures`` (median, low and high of each way, in rows or batches a second
and in a second of processor time) and ``checks`` (the ratios with their spread). Exit code 0.
"""

from __future__ import annotations

import argparse
import json
import sys

from campaign import records
from campaign.choosing import add_only
from campaign.process import guarded
from speed.curve_table import TABLE
from speed.measuring import add_place, measure_rows
from speed.rows import Setup

FILE = records.RESULTS / "curve.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, TABLE, "row")
    parser.add_argument("--quick", action="store_true", help="short windows, not recorded: a smoke run")
    add_place(parser)
    args = parser.parse_args()
    print(json.dumps(measure_rows(TABLE, args.only, Setup(args.place, {}, args.quick, 0.0), FILE)))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
