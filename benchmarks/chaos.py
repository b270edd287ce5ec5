#!/usr/bin/env python
"""Chaos: does a whole job keep every row through an hour of kills, pauses, usurpers and broken links?

    .venv/bin/python benchmarks/chaos.py                          # an hour with all faults, recorded
    .venv/bin/python benchmarks/chaos.py --quick                  # half a minute, not recorded
    .venv/bin/python benchmarks/chaos.py --seed 1 --dir PLACE     # other faults, histories kept in PLACE

What it measures: `headrace chaos` starts three actors of two lanes, a robot with a spool, an evaluator, a learner and a
buffer under the supervisor, each client behind a proxy of its own, and has faults of every kind
(`headrace/launch/chaos/schedule.py`) hit them at random times; for a third of the time everybody has keys. Envs and clients
write down what they do before they do it, the pool is read while it runs, and a checker that knows neither ledger nor protocol
accounts for every step and every row. Clients that lie, and a stolen key, must be found first.

How long: an hour and a few minutes. It adds one line to docs/results/chaos.jsonl; a seed that has passed is not repeated, a
failed one only on another commit. Run it on a quiet machine: what hits how often depends on how fast roles come back.

The last line on stdout is the campaign as one JSON object. Exit code 0: nothing is at fault, and it was as large as asked for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from campaign import chaotic, provenance, records
from campaign.process import guarded, headrace

from headrace.launch.leash import leash

FILE = records.RESULTS / chaotic.FILE
QUICK = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="which faults, when and on whom")
    parser.add_argument("--dir", type=Path, help="new directory for the histories; default: one in runs/")
    parser.add_argument("--quick", action="store_true", help="half a minute, not recorded: a smoke run")
    args = parser.parse_args()
    origin = provenance.commit()
    if not args.quick and not records.unpassed([(args.seed,)], chaotic.newest(records.read(FILE)), origin["commit"], "seed"):
        print(json.dumps({"seed": args.seed, "done": True}))
        return 0
    place = args.dir or records.RUNS / f"chaos-{provenance.stamp().replace(':', '')}"
    found = campaign(QUICK if args.quick else chaotic.MINUTES, args.seed, place)
    record = {**found, **origin, "machine": provenance.machine(), "date": provenance.stamp()}
    if not args.quick:
        records.append(FILE, record)
    print(json.dumps(record))
    return 0 if record["passed"] and (args.quick or chaotic.reached(record)) else 1


def campaign(minutes: float, seed: int, place: Path) -> dict[str, Any]:
    """One campaign; its last line."""
    words = headrace("chaos", "--minutes", f"{minutes:g}", "--seed", str(seed), "--dir", str(place), "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=leash()) as process:
        lines = (process.stdout.read() if process.stdout else "").splitlines()
    if process.returncode not in (0, 1) or not lines or not lines[-1].startswith("{"):
        raise SystemExit(f"headrace chaos ended with exit code {process.returncode} before it could judge")
    print("\n".join(lines[:-1]))
    said: dict[str, Any] = json.loads(lines[-1])
    return said


if __name__ == "__main__":
    sys.exit(guarded(main))
