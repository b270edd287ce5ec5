#!/usr/bin/env python
"""Mutants: do the tests find faults that are planted in the pool on purpose?

    .venv/bin/python benchmarks/mutants.py                               # all of them
    .venv/bin/python benchmarks/mutants.py --only next-is-row-plus-one   # some
    .venv/bin/python benchmarks/mutants.py --quick                       # the first three, not recorded
    .venv/bin/python benchmarks/mutants.py --list                        # names, files and tests

What it measures: the tracked files are copied to a temporary directory, and every test that is named by a mutant must pass
there. Then each fault of campaign/*faults.py is planted in the copy, alone, and its tests must fail. A fault whose text is not
in its file exactly once, or whose tests cannot run, is an error and no kill. The working tree is never touched.

How long: about 5 seconds a mutant, 5 minutes in all. Each finished mutant adds one line to docs/results/mutants.jsonl, and is
not repeated on the same commit, whatever came of it.

The last line on stdout is one JSON object: killed, total, and the survivors by name. Exit code 0: all were killed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import provenance, records
from campaign.choosing import add_only
from campaign.faults import MUTANTS
from campaign.planting import Mutant, PlantingError, Tree
from campaign.process import guarded

FILE = records.RESULTS / "mutants.jsonl"
QUICK = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, MUTANTS, "mutant")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK}, not recorded: a smoke run")
    parser.add_argument("--list", action="store_true", help="print names, files and tests, and exit")
    args = parser.parse_args()
    chosen = [MUTANTS[name] for name in args.only][: QUICK if args.quick else None]
    if args.list:
        for mutant in chosen:
            print(f"{mutant.name:<36} {mutant.file:<28} {' '.join(mutant.tests)}")
        return 0
    origin = provenance.commit()
    known = {} if args.quick else finished(records.read(FILE), origin)
    try:
        known |= judge([mutant for mutant in chosen if mutant.name not in known], origin, record=not args.quick)
    except PlantingError as error:
        print(error, file=sys.stderr)
        return 2
    survivors = [mutant.name for mutant in chosen if not known[mutant.name]["killed"]]
    print(json.dumps({"killed": len(chosen) - len(survivors), "total": len(chosen), "survivors": survivors}))
    return 1 if survivors else 0


def finished(known: list[records.Record], origin: Mapping[str, Any]) -> dict[str, records.Record]:
    """Mutant -> its newest record, as far as that is of this very commit; changed files are of none."""
    newest = records.latest(known, "mutant").values()
    return {r["mutant"]: r for r in newest if r["commit"] == origin["commit"] and not (r["dirty"] or origin["dirty"])}


def judge(todo: Sequence[Mutant], origin: Mapping[str, Any], *, record: bool) -> dict[str, records.Record]:
    """Plant each and run its tests; mutant -> its record."""
    done: dict[str, records.Record] = {}
    if not todo:
        return done
    with tempfile.TemporaryDirectory(prefix="headrace-mutants-") as place:
        tree = Tree(Path(place).resolve() / "tree")
        print(f"{len(todo)} mutants to do; first their tests without any fault", flush=True)
        tree.require_green(todo)
        for number, mutant in enumerate(todo, 1):
            verdict = {"mutant": mutant.name, "file": mutant.file, "tests": list(mutant.tests), **tree.judge(mutant)}
            made = {**verdict, **origin, "machine": provenance.machine(), "date": provenance.stamp()}
            if record:
                records.append(FILE, made)
            said = f"killed by {made['by']}" if made["killed"] else "SURVIVED"
            print(f"[{number}/{len(todo)}] {mutant.name}: {said}; {made['seconds']} s", flush=True)
            done[mutant.name] = made
    return done


if __name__ == "__main__":
    sys.exit(guarded(main))
