#!/usr/bin/env python
"""Damage: is a snapshot or an export ever loaded though one of its files was changed?

    .venv/bin/python benchmarks/damage.py                    # ten trials of each
    .venv/bin/python benchmarks/damage.py --only snapshot    # of one
    .venv/bin/python benchmarks/damage.py --quick            # one small trial of each, not recorded
    .venv/bin/python benchmarks/damage.py --selftest         # only: is a reader found out that looks at no digest?

What it measures: a pool is saved twice, and exported to shards. One bit at a random place of all files of the newer snapshot is
flipped, 100 times a trial; each file is cut at a random place; and every two files are swapped. Each time the next pool loads
what is there, as a buffer does: it must hold what the older snapshot holds, bit for bit, and the log must name the file. Of the
export each import must be refused with the file's name, and leave its pool empty.

Before any trial the same harm is done before a reader that looks at no digest. It must load some of it silently, or the trials
prove nothing and the campaign does not start.

How long: two minutes. Each trial adds one line to docs/results/damage.jsonl. One that passed is not repeated; a failed one only
on another commit, so that failures are not tried away.

The last line on stdout is one JSON object: for each kind of files the trials, failures, harms, and what was silently loaded,
not named, left a pool with something else, or crashed. Exit code 0: all trials are made, and none of these.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from campaign import damaging, pool_tables, provenance, records
from campaign.choosing import add_only
from campaign.damaging import FAULTS, HARMS, KINDS
from campaign.pool_tables import DAMAGE, FLIPS
from campaign.process import guarded

FILE = records.RESULTS / DAMAGE.file
SEED = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, KINDS, "kind")
    parser.add_argument("--quick", action="store_true", help="one trial of each kind with a tenth of the bits, not recorded")
    parser.add_argument("--selftest", action="store_true", help="look at no digest, and exit")
    args = parser.parse_args()
    flips = FLIPS // 10 if args.quick else FLIPS
    found = {kind: blind(kind, FLIPS) for kind in args.only}
    print(f"silently loaded where no digest is looked at: {found}", flush=True)
    if args.selftest or not all(found.values()):
        print(json.dumps({"selftest": "passed" if all(found.values()) else "FAILED"}))
        return 0 if all(found.values()) else 1
    return campaign(args.only, flips, args.quick)


def campaign(kinds: list[str], flips: int, quick: bool) -> int:
    """Every trial that is to do, and the verdict."""
    origin = {**provenance.commit(), "machine": provenance.machine()}
    known = [] if quick else records.read(FILE)
    plan = [(kind, n) for n in range(1 if quick else DAMAGE.trials) for kind in kinds]
    todo = records.unpassed(plan, known, origin["commit"], *DAMAGE.keys)
    print(f"{len(todo)} trials to do", flush=True)
    for number, (kind, trial) in enumerate(todo, 1):
        with tempfile.TemporaryDirectory(prefix="headrace-damage-") as place:
            seed = [SEED, KINDS.index(kind), trial]
            counts = damaging.harmed(kind, Path(place), np.random.default_rng(seed), flips)
        passed = not any(counts[fault] for fault in FAULTS)
        record = {"kind": kind, "trial": trial, "seed": SEED, **counts, "passed": passed, "date": provenance.stamp(), **origin}
        known.append(record)
        if not quick:
            records.append(FILE, record)
        said = ", ".join(f"{name.replace('_', ' ')} {counts[name]}" for name in (*HARMS, *FAULTS))
        print(f"[{number}/{len(todo)}] {kind} {trial}: {'passed' if passed else 'FAILED'}; {said}", flush=True)
    summary = {kind: said for kind, said in pool_tables.sum_damage(known).items() if kind in kinds}
    print(json.dumps(summary))
    whole = all(summary.get(kind, {}).get("trials") == len(plan) // len(kinds) for kind in kinds)
    return 0 if whole and not any(said["failures"] for said in summary.values()) else 1


def blind(kind: str, flips: int) -> int:
    """How much is silently loaded where no digest is looked at."""
    with tempfile.TemporaryDirectory(prefix="headrace-damage-") as place:
        return damaging.blind(kind, Path(place), flips)["silently_loaded"]


if __name__ == "__main__":
    sys.exit(guarded(main))
