#!/usr/bin/env python
"""Fuzz: does any message crash, hang or fill a part of the wire, or enter as something else than it was sent as?

    .venv/bin/python benchmarks/fuzz.py                     # a million messages against each part
    .venv/bin/python benchmarks/fuzz.py --only service      # one part
    .venv/bin/python benchmarks/fuzz.py --guided            # codec and session by coverage; needs `pip install atheris`
    .venv/bin/python benchmarks/fuzz.py --quick             # 2,000 messages a part, not recorded

What it measures: honest messages of every kind are changed (bits flipped, pieces cut, spliced and repeated, lengths edited,
frames lost, doubled and swapped, numbers without value put in) and given to the classes that serve: `codec` (headers, blocks,
labels, weight sets, compressed frames), `session` (what an actor takes from a lying buffer) and `service` (a buffer with a
pool, an honest actor, and a liar with a session of each role or with none). Of each message that is accepted the bytes must be
what it encodes to again. Every 1000 messages the honest actor must be acknowledged, and pool, fleet and status must be sound.
A trial runs in a process of its own that may have 1 GiB of data, and that ends when 1000 messages take 20 s.

How long: half a minute (codec) to three minutes (service) for each of the ten trials of a part. Each adds one line to
docs/results/fuzz.jsonl and is not repeated once it has passed; a failed one only on another commit.

The last line on stdout is one JSON object: messages, accepted, crashes and hangs of each part, and the peak of memory. Exit
code 0: no crash, no hang.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from campaign import fuzzing, guiding, provenance, records
from campaign.choosing import add_only
from campaign.fuzz_table import summarise
from campaign.process import ProcessFailed, guarded
from campaign.process import run as run_process

FILE = records.RESULTS / "fuzz.jsonl"
SEED = 5
DEADLINE_S = 1800.0
QUICK = 2000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, fuzzing.PARTS, "part")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} messages a part, not recorded")
    parser.add_argument("--guided", action="store_true", help="mutations guided by coverage, of codec and session")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return guiding.worker(args.worker) if args.guided else fuzzing.worker(args.worker)
    kinds = [f"guided {part}" for part in args.only if part in guiding.PARTS] if args.guided else list(args.only)
    origin = {**provenance.commit(), "machine": provenance.machine()}
    plan = [(kind, n) for n in range(1 if args.quick else fuzzing.TRIALS) for kind in kinds]
    known = [] if args.quick else records.read(FILE)
    todo = records.unpassed(plan, known, origin["commit"], "part", "trial")
    print(f"{len(todo)} trials to do", flush=True)
    for number, (kind, trial) in enumerate(todo, 1):
        found = one(kind, trial, QUICK if args.quick else fuzzing.MESSAGES)
        made = {**found, **origin, "date": provenance.stamp()}
        print(f"[{number}/{len(todo)}] {kind} {trial}: {said(made)}", flush=True)
        known.append(made)
        if not args.quick:
            records.append(FILE, made)
    result = summarise(known, kinds)
    print(json.dumps(result))
    return 0 if all(part["crashes"] == part["hangs"] == 0 for part in result.values()) else 1


def one(kind: str, trial: int, messages: int) -> records.Record:
    """One trial in its process; its record."""
    words = json.dumps({"part": kind.removeprefix("guided "), "seed": 1000 * SEED + trial, "messages": messages})
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", words, *(["--guided"] if " " in kind else [])]
    found: dict[str, Any] = {"part": kind, "trial": trial, "seed": 1000 * SEED + trial, "cap_bytes": fuzzing.CAP_BYTES}
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as place:
        log = Path(place) / "log"
        try:
            ended = run_process(command, log, deadline_s=DEADLINE_S)
            found |= {**json.loads(ended.output()[-1]), "part": kind, "hangs": 0}
        except ProcessFailed as error:
            found |= {"messages": 0, "accepted": 0, "crashes": 0, "hangs": 1, "found": [str(error)[-2000:]]}
    return {**found, "passed": not found["crashes"] and not found["hangs"]}


def said(record: records.Record) -> str:
    """A trial in one line."""
    verdict = "passed" if record["passed"] else f"FAILED: {' | '.join(record['found'])}"
    peak = record.get("peak_bytes", 0) / 2**20
    return f"{verdict}; {record['messages']} messages, {record['accepted']} accepted, {peak:.0f} MiB, {record.get('seconds')} s"


if __name__ == "__main__":
    sys.exit(guarded(main))
