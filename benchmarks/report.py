#!/usr/bin/env python
"""Results for people: docs/results/README.md, its pictures, tables of docs/scale.md and README.md, from docs/results/*.jsonl.

    .venv/bin/python benchmarks/report.py            # write them
    .venv/bin/python benchmarks/report.py --check    # exit code 1 when a page is not what the records give

What it says: a table of verdicts first, then the promises with their trials and bars, then each gate with its seeds, settings
and curve, headrace beside its peers, a robot that learns, its periods, a policy server, many hosts, a whole job under faults,
survival, kills under load, power cuts, rows by mapping, the stall by a snapshot, damaged files, mutated messages, the speed of
pool and learner, what keys cost, and planted faults. A gate without records says "not run yet". Records that no section knows
are listed with their newest line.

How long: seconds. The last line on stdout is one JSON object: verdict -> its state.
"""

from __future__ import annotations

import argparse
import json
import sys

from campaign import arm_tables, highlights, hosts_table, pool_tables, records, robot_table, scaling, tables
from campaign.drawing import draw_curves
from campaign.promise_tables import promise_section, tallies
from campaign.registry import GATES, PICTURES
from promised import promises

PAGE = "README.md"
KNOWN = (
    *("gates.jsonl", "peers.jsonl", "survival.jsonl", "pool.jsonl", "kills.jsonl", "mutants.jsonl", "powercuts.jsonl"),
    *("learner.jsonl", "fuzz.jsonl", "curve.jsonl", "chaos.jsonl", robot_table.FILE),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; tell whether the pages are up to date")
    args = parser.parse_args()
    found = {path.name: records.read(path) for path in sorted(records.RESULTS.glob("*.jsonl"))}
    gates, peers, survival, pool, kills, mutants, powercuts, *rest = (found.get(name, []) for name in KNOWN)
    learner, fuzz, curve, chaos, robot = rest
    pictures = {} if args.check else {name: draw(name, gates) for name in PICTURES}
    drawn = [name for name in PICTURES if (pictures[name] if pictures else (records.RESULTS / f"{name}.png").exists())]
    if robot_drawn(robot, check=args.check):
        drawn.append(robot_table.PICTURE)
    known = promises()
    tabled = {*KNOWN, *pool_tables.FILES, *arm_tables.FILES, hosts_table.FILE}
    shown = tabled | {row.file for promise in known.values() for row in promise.parts}
    others = {name: lines for name, lines in found.items() if name not in shown}
    promised = promise_section(known, found)
    measured = (pool, kills, mutants, powercuts, learner, promised, fuzz, curve, chaos, robot, found)
    text = tables.page(gates, peers, survival, others, drawn, *measured)
    page = records.RESULTS / PAGE
    scale = records.RESULTS.parent / scaling.PAGE
    front = records.ROOT / highlights.PAGE
    lines = tables.summary(gates, peers, survival, pool, kills, mutants, powercuts, learner, fuzz, curve, chaos, robot, found)
    pages = {
        page: text,
        scale: scaling.page(scale.read_text(encoding="utf-8"), records.RESULTS),
        front: highlights.page(front.read_text(encoding="utf-8"), found, lines),
    }
    if args.check:
        same = {path: path.exists() and path.read_text(encoding="utf-8") == made for path, made in pages.items()}
        told = {True: "up to date", False: "out of date"}
        print(json.dumps({str(path.relative_to(records.ROOT)): told[holds] for path, holds in same.items()}))
        return 0 if all(same.values()) else 1
    for path, made in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
        print(path.relative_to(records.ROOT))
    kept = {name: tally.state for name, tally in tallies(known, found).items()}
    print(json.dumps({**{line.name: line.state for line in lines}, **kept}))
    return 0


def robot_drawn(lines: list[records.Record], *, check: bool) -> bool:
    """Whether there is a picture of the robot's runs, which is drawn unless this only checks."""
    picture = records.RESULTS / robot_table.PICTURE
    return picture.exists() if check else robot_table.draw_robot(lines, picture)


def draw(name: str, lines: list[records.Record]) -> bool:
    """Draw the curves of one picture; whether there was anything to draw."""
    return draw_curves([GATES[gate] for gate in PICTURES[name]], lines, records.RESULTS / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
