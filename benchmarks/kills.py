#!/usr/bin/env python
"""Kills: does a pool lose, double, tear or invent a row or a label when its buffer is killed under load, again and again?

    .venv/bin/python benchmarks/kills.py                      # the 100 kills at pool.ack: memory
    .venv/bin/python benchmarks/kills.py --ack synced         # the 30 at pool.ack: synced
    .venv/bin/python benchmarks/kills.py --only snapshot      # of one kind
    .venv/bin/python benchmarks/kills.py --quick              # one kill of each kind in a small pool, not recorded
    .venv/bin/python benchmarks/kills.py --selftest           # only: does the audit find sabotage?

What it measures: two writers (uplinks of the wire, as actors have) number rows that prove themselves, label each 500 of them
late (outcome, other rewards, discard), and note what is acknowledged to them; a learner draws batches by priority and rates
their rows. They live on while the buffer is killed and started again on the same pool directory. Of the kills three in five
come at a random time under load, and as many while a snapshot is written as while the buffer opens the pool with another
capacity. What the last two leave half done on disk proves that they came in time; otherwise the kill is tried again.

After each kill a copy of the pool is opened as the next buffer opens it, and every row read: each must be what its writer gave
it, each stream must reach to its last acknowledged row without a gap and no further than was sent, and what is gone must be
what the pool counts as evicted, retired or discarded. Each acknowledged label must be on all of its rows, any other on all or
none, in order; and no row may have a priority that it was not given. A snapshot must be whole or invisible, and its rows are
judged alike. Then the buffer is started again, and the time to its first acknowledgement is taken; after a kill during a
change of capacity that includes the change.

Before any kill a pool is sabotaged (a row removed, doubled, changed by one bit, invented, its label or its discard undone):
the audit must find each, or nothing it says counts and the campaign does not start.

How long: 4 to 12 s a kill, a quarter of an hour in all. Each kill adds one line to docs/results/kills.jsonl. One that
passed is not repeated; a failed one only on another commit, so that failures are not tried away. ``--place`` is where the
pool lies.

The last line on stdout is one JSON object: kills and failures of each kind, acknowledged rows and labels, rows lost, doubled,
corrupted, phantom and unlabelled, and median and longest time from restart to first acknowledgement. Exit code 0: all of it is
as asked.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from campaign import numbered, provenance, records, target, writing
from campaign.choosing import add_only, plan_of
from campaign.numbered import SABOTAGES, Rows, Verdict, Written
from campaign.process import ProcessFailed, guarded
from campaign.strikes import BARS, FULL, KINDS, QUICK, TRIALS, Scale, labelled, of_level, said, summarise
from campaign.target import Target

from headrace.buffer.pool import SACReplayPool
from headrace.common.errors import HeadraceError

FILE = records.RESULTS / "kills.jsonl"
SEED = 3
TRIES = 20
FILL_S = 900.0  # a deadline: on a busy machine writers are slow
SPANS = {"load": 1.5, "snapshot": 0.25, "capacity": 0.25}  # a kill comes at a random time within this (s) of what it is to hit
MILLION = 1_000_000  # rows of the pools that these were chosen for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, KINDS, "kind")
    parser.add_argument("--ack", choices=sorted(TRIALS), default="memory", help="the level of acknowledgement; default: memory")
    parser.add_argument("--quick", action="store_true", help="one kill of each kind in a small pool, not recorded")
    parser.add_argument("--selftest", action="store_true", help="check the audit and exit")
    parser.add_argument(
        "--place",
        type=Path,
        default=None,
        help="directory for the pool; default: shared memory, if there is any, and for synced a temporary directory",
    )
    parser.add_argument("--buffer", help=argparse.SUPPRESS)
    parser.add_argument("--writers", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.buffer:
        target.run_buffer(json.loads(args.buffer))
        return 0
    if args.writers:
        words = json.loads(args.writers)
        progress = writing.Progress(Path(words["progress"]))
        writing.write(progress, words["endpoints"], words["rate"], words["fill"], words["largest"])
        return 0
    found = selftest()
    print(f"sabotage found: {found}", flush=True)
    if args.selftest or not all(found.values()):
        print(json.dumps({"selftest": "passed" if all(found.values()) else "FAILED"}))
        return 0 if all(found.values()) else 1
    return campaign(args.ack, args.only, args.place, args.quick)


def campaign(ack: str, kinds: list[str], place: Path | None, quick: bool) -> int:
    """Every kill that is to do, and the verdict."""
    origin = {**provenance.commit(), "machine": provenance.machine()}
    plan = [(kind, n) for kind, n in plan_of(TRIALS[ack]) if kind in kinds]
    if quick:
        plan = [(kind, 0) for kind in kinds]
    else:
        known = labelled(of_level(ack, records.read(FILE)))
        plan = records.unpassed(plan, known, origin["commit"], "kind", "trial")
    print(f"{len(plan)} kills to do", flush=True)
    done = []
    memory = Path("/dev/shm")
    where = place or (memory if ack == "memory" and memory.is_dir() else None)
    with tempfile.TemporaryDirectory(dir=where, prefix="headrace-kills-", ignore_cleanup_errors=True) as root:
        for number, record in enumerate(strikes(Path(root), plan, QUICK if quick else FULL[ack], ack), 1):
            record = {**record, **origin}
            done.append(record)
            if not quick:
                records.append(FILE, record)
            print(f"[{number}/{len(plan)}] {line(record)}", flush=True)
    summary = summarise(ack, done if quick else records.read(FILE))
    whole = all(summary["kinds"].get(kind, {}).get("kills", 0) >= (1 if quick else TRIALS[ack][kind]) for kind in kinds)
    missed = []
    if not whole:
        missed.append("fewer kills than are asked for")
    if not quick and summary["acked"] < BARS["acked"][ack]:
        missed.append(f"{summary['acked']} rows acknowledged, asked for >= {BARS['acked'][ack]}")
    if summary["restart_max_s"] > BARS["restart_s"]:
        missed.append(f"back after {summary['restart_max_s']} s, asked for <= {BARS['restart_s']} s")
    if missed:
        print(f"MISSED: {'; '.join(missed)}", flush=True)
    print(json.dumps(summary))
    return 1 if missed or summary["failures"] else 0


def strikes(root: Path, plan: list[tuple[str, int]], scale: Scale, ack: str = "memory") -> Iterable[records.Record]:
    """Carry out kills one after the other on one pool, which is filled first and has one whole snapshot."""
    if not plan:
        return
    goal = int(1.1 * max(scale.capacities))
    aim = Target(root, scale.rate, goal, ack)
    try:
        capacity = scale.capacities[0]
        aim.restart(capacity)
        aim.wait(lambda: aim.progress.acked() >= goal, "full pool", FILL_S)
        aim.ask_snapshot()
        aim.wait(lambda: any(aim.place.snapshots.glob("snapshot-*")), "snapshot")
        before = np.zeros_like(aim.progress.known())
        for kind, trial in plan:
            rng = np.random.default_rng([SEED, KINDS.index(kind), trial])
            if kind == "capacity":
                capacity = scale.capacities[scale.capacities[0] == capacity]
            hit = strike(aim, kind, capacity, rng, scale)
            now = aim.progress.known()
            place = {"ack": ack, "kind": kind, "trial": trial, "capacity": capacity}
            yield {**place, **hit, **writing.counts(now, before), "date": provenance.stamp()}
            before = now
            if not hit["passed"]:
                return  # what comes after a fault would count it again
    finally:
        aim.close()


def strike(aim: Target, kind: str, capacity: int, rng: np.random.Generator, scale: Scale) -> records.Record:
    """One kill, the audit of what it left, and the restart."""
    verdict, hit, restart_s = Verdict(), {}, None
    try:
        hit = hit_on(aim, kind, capacity, rng, scale)
        verdict = target.audit_copy(aim.place, aim.progress)
        if kind == "snapshot":
            verdict += target.audit_snapshots(aim.place, aim.progress)
        restart_s = round(aim.restart(capacity), 3)
    except (ProcessFailed, HeadraceError) as error:
        text = str(error).replace(str(aim.place.root), "").replace(str(records.ROOT), "")
        verdict += Verdict(problems=(text,))
    counts = {**asdict(verdict), "problems": list(verdict.problems)}
    return {**hit, "restart_s": restart_s, **counts, "passed": verdict.passed}


def hit_on(aim: Target, kind: str, capacity: int, rng: np.random.Generator, scale: Scale) -> dict[str, Any]:
    """Kill the buffer at what ``kind`` says; how many tries that took, and how long after its beginning (s) the kill came."""
    span = SPANS[kind] * (1 if kind == "load" else scale.capacities[0] / MILLION)
    for tries in range(1, TRIES + 1):
        delay = float(rng.uniform(0, span))
        if kind == "load":
            time.sleep(delay)
            aim.kill()
            return {"delay_s": round(delay, 4), "tries": tries}
        if kind == "snapshot":
            half, begun = aim.place.writing, aim.ask_snapshot()
        else:
            aim.kill(signal.SIGTERM)
            half, begun = aim.place.half_changed, aim.start(capacity)
        aim.wait(partial(half, begun), f"begin of the {kind}")
        time.sleep(delay)
        aim.kill()
        if half(0.0 if kind == "capacity" else begun):
            return {"delay_s": round(delay, 4), "tries": tries}
        if kind == "capacity":  # it was done: change back, and try again
            aim.restart(*(c for c in scale.capacities if c != capacity))
        else:
            aim.restart(capacity)
    raise ProcessFailed(f"no kill of {TRIES} came during the {kind}")


def selftest() -> dict[str, bool]:
    """Whether the audit passes a good pool (``none``), and finds each sabotage of one."""
    rows, labels = 4200, 4200 // numbered.PART
    with SACReplayPool(3000, spec=numbered.SPEC) as pool:
        for first, n in ((1, 1000), (1001, 2500), (3501, 700)):
            for writer in range(writing.WRITERS):
                pool.insert(numbered.block(writer, first, n), numbered.actor_id(writer), 1, first)
                for number in range(first // numbered.PART + 1, (first + n - 1) // numbered.PART + 1):
                    pool.amend(numbered.actor_id(writer), numbered.label(number, 1))
        ids = np.arange(pool.tail, pool.head)
        discarded = ~np.isin(ids, pool.live(pool.tail, pool.head).ids)
        good, counters, actors = Rows(pool.gather(ids), discarded), pool.counters(), pool.actors()
    written = {(writer, 1): Written(rows, rows, labels, labels) for writer in range(writing.WRITERS)}
    rng = np.random.default_rng(SEED)
    made = {"none": good, **{kind: numbered.sabotage(good, kind, rng) for kind in SABOTAGES}}
    verdicts = {kind: numbered.judge(numbered.collect([m], actors), written, counters) for kind, m in made.items()}
    return {kind: verdict.passed == (kind == "none") for kind, verdict in verdicts.items()}


def line(record: records.Record) -> str:
    """A kill in one line."""
    when = f"{record.get('delay_s')} s after its beginning (try {record.get('tries')})"
    return said(record, f"{record['ack']}, {record['kind']} {record['trial']}", when)


if __name__ == "__main__":
    sys.exit(guarded(main))
