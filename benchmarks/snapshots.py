#!/usr/bin/env python
"""What a snapshot costs those who insert meanwhile: at most 1 % of wall time?

    .venv/bin/python benchmarks/snapshots.py             # three trials in a pool of a million rows
    .venv/bin/python benchmarks/snapshots.py --quick     # one in a tenth of that with two snapshots, not recorded

What it measures: one thread inserts blocks of 32 HalfCheetah-sized rows at a fixed rate into a full pool, in windows: alone,
then while a snapshot is written, then alone again, and so on in turn. The stall of a window is the share of its wall time by
which inserts took longer than the median insert alone; a snapshot adds what its window has more than the two around it.

Other work on the machine counts as stall too, so a trial also says by how much neighbouring windows without a snapshot differ.
The bar is met only where the whole 95 % interval of what snapshots add, and that difference too, are within it, and missed only
where the interval lies above it by more than that difference. Elsewhere the record says "too noisy", and nothing is judged.

How long: two minutes on a quiet machine. Each trial adds one line to docs/results/snapshots.jsonl. Once all
are made and judged together they are not repeated unless the bar was missed and the commit is another; until then each that was
too noisy is made again by the next call.

The last line on stdout is one JSON object: pairs of windows, what a snapshot adds with its interval, the noise, and the verdict
over all trials. Exit code 0: the bar is met. 1: it is missed. 3: too noisy to say.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from campaign import pool_tables, provenance, records, stalling
from campaign.pool_tables import STALLS
from campaign.process import guarded
from campaign.stalling import MET, MISSED, NOISY

FILE = records.RESULTS / STALLS.file
ROWS, PAIRS = 1_000_000, 8
QUICK_ROWS, QUICK_PAIRS = 100_000, 2
CODES = {MET: 0, MISSED: 1, NOISY: 3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where the pool lies; a temporary directory without it (path)")
    parser.add_argument("--quick", action="store_true", help="one small trial, not recorded")
    args = parser.parse_args()
    origin = {**provenance.commit(), "machine": provenance.machine()}
    known = [] if args.quick else records.read(FILE)
    todo = pending(1 if args.quick else STALLS.trials, known, origin["commit"])
    print(f"{len(todo)} trials to do", flush=True)
    for number, trial in enumerate(todo, 1):
        with tempfile.TemporaryDirectory(dir=args.dir, prefix="headrace-snapshots-") as place:
            figures = stalling.measure(Path(place), *((QUICK_ROWS, QUICK_PAIRS) if args.quick else (ROWS, PAIRS)))
        said = stalling.judge([(figures["alone"], figures["beside"])])
        verdict = {**said, "passed": said["verdict"] == MET}
        record = {"trial": trial, **figures, **verdict, "date": provenance.stamp(), **origin}
        known.append(record)
        if not args.quick:
            records.append(FILE, record)
        print(f"[{number}/{len(todo)}] {line(record)}", flush=True)
    summary = pool_tables.sum_stalls(known)
    print(json.dumps(summary))
    return CODES[summary["verdict"]]


def pending(trials: int, known: list[records.Record], commit: str) -> list[int]:
    """What is to be made: all of it where another commit missed the bar, else what is missing or was too noisy."""
    said = pool_tables.sum_stalls(known)
    if said["trials"] == trials and said["verdict"] != NOISY:
        again = said["verdict"] == MISSED and all(r["commit"] != commit for r in pool_tables.newest(STALLS, known))
        return [*range(trials)] if again else []
    judged = [r for r in known if r["verdict"] != NOISY]
    return [n for (n,) in records.unpassed([(n,) for n in range(trials)], judged, commit, *STALLS.keys)]


def line(record: records.Record) -> str:
    """A trial in one line."""
    low, high = record["interval"]
    added = f"a snapshot of {record['snapshot_s']:.2f} s adds {record['added']:.2%} [{low:.2%}, {high:.2%}]"
    return f"{record['trial']}: {record['verdict']}; {added}, windows alone differ by {record['noise']:.2%}"


if __name__ == "__main__":
    sys.exit(guarded(main))
