#!/usr/bin/env python
"""Checkpoints: is one always there to go on from, and is it never a wrong one, whatever kills the learner or fails on disk?

    .venv/bin/python benchmarks/checkpoints.py                # 200 kills
    .venv/bin/python benchmarks/checkpoints.py --faults       # and every system call of a write failed, one after the other
    .venv/bin/python benchmarks/checkpoints.py --quick        # 20 kills, not recorded
    .venv/bin/python benchmarks/checkpoints.py --selftest     # only: does the audit find sabotage?

What it measures: a process writes checkpoints in a loop as the learner does, in a thread, keeping the newest two, and is killed
at a random instant after the first: while it writes, renames, or deletes old ones. All of it goes on in one directory. Then
the newest whole checkpoint is looked for as the next learner does. Each number in a checkpoint is that of its write, in the
state as in the policy beside it: what is loaded must be one write, no older than the last that was said to be on disk, and
whatever can be seen must be whole.

With --faults strace makes system calls fail in the process that writes: the k-th write (no space), fsync, rename, unlink
(I/O errors), mkdir and open (too many files), for every k until the checkpoint is written untouched; once, and for good
from then on; for a new step, and for one that is written again. Each time the same is asked, and that the next write, with
nothing failing, leaves nothing else behind.

Before that a directory is sabotaged (a file gone, a mixture of two writes under a right manifest, the policy of another
write, an older checkpoint than was promised, none at all): the audit must find each, or nothing it says counts.

How long: about 0.2 s a kill and 2 to 10 s for each of the 24 kinds of faults, 3 minutes in all. Each kill and each kind of
fault adds one line to docs/results/checkpoints.jsonl. One that passed is not repeated; a failed one only on another commit.

The last line on stdout is one JSON object: kills, how many of them left a checkpoint half written, kinds of faults, system
calls that were failed, and failures. Exit code 0: none failed, and all that was asked for was done.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from campaign import provenance, records, saving
from campaign.process import Unable, guarded
from campaign.saving import POLICY, audit, state, weights

from headrace.learner import checkpoint

FILE = records.RESULTS / "checkpoints.jsonl"
SEED = 7
QUICK = 20
DELAY_S = 0.1  # a kill comes at a random time within this of the first checkpoint


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kills in all")
    parser.add_argument("--faults", action="store_true", help="fail system calls too (needs strace)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} kills, not recorded")
    parser.add_argument("--selftest", action="store_true", help="check the audit and exit")
    parser.add_argument("--place", type=Path, help="directory for the checkpoints; default: a temporary one")
    args = parser.parse_args()
    torch.set_num_threads(1)  # a forked process has no other
    logging.disable()  # what is damaged or full here is meant to be
    with tempfile.TemporaryDirectory(dir=args.place, prefix="headrace-checkpoints-") as root:
        found = selftest(Path(root))
        print(f"sabotage found: {found}", flush=True)
        if args.selftest or not all(found.values()):
            print(json.dumps({"selftest": "passed" if all(found.values()) else "FAILED"}))
            return 0 if all(found.values()) else 1
        return campaign(Path(root), QUICK if args.quick else args.kills, args.faults, record=not args.quick)


def campaign(root: Path, kills: int, faults: bool, *, record: bool) -> int:
    """Everything that is to do, and the verdict."""
    if faults and shutil.which("strace") is None:
        raise Unable("--faults needs strace, which makes system calls fail")
    origin = {**provenance.commit(), "machine": provenance.machine()}
    whole: list[tuple[str, Any]] = [("kill", n) for n in range(kills)]
    whole += [("fault", name) for name in saving.fault_names()] if faults else []
    known = records.read(FILE) if record else []
    plan = records.unpassed(whole, known, origin["commit"], "kind", "trial")
    print(f"{len(plan)} of {len(whole)} to do", flush=True)
    done = []
    for number, found in enumerate(trials(root, plan), 1):
        line = {**found, **origin, "date": provenance.stamp()}
        done.append(line)
        if record:
            records.append(FILE, line)
        print(f"[{number}/{len(plan)}] {said(line)}", flush=True)
    newest = records.latest([*known, *done], "kind", "trial")
    lines = [newest[key] for key in whole if key in newest]
    print(json.dumps(summarise(lines)))
    return 0 if len(lines) == len(whole) and all(line["passed"] for line in lines) else 1


def trials(root: Path, plan: Sequence[tuple[str, Any]]) -> Iterable[records.Record]:
    """Carry out kills, one after the other in one directory, and faults, each in its own."""
    step = 1
    for kind, trial in plan:
        if kind == "kill":
            delay = float(np.random.default_rng([SEED, trial]).uniform(0, DELAY_S))
            said, half = saving.killed(root / "killed", step, delay)
            verdict = audit(root / "killed", said)
            step, problems = max(said, verdict.loaded) + 1, verdict.problems
            facts: records.Record = {"delay_s": round(delay, 4), "writes": said, "loaded": verdict.loaded, "half": half}
        else:
            reached, problems = saving.failing(root / "failing", trial, root / "strace.log")
            facts = {"reached": reached}
        yield {
            "kind": kind,
            "trial": trial,
            **facts,
            "passed": not problems,
            "problems": [text.replace(str(root), "") for text in problems],
        }


def summarise(lines: Sequence[records.Record]) -> records.Record:
    """Counts over kills and faults."""
    kills, faults = ([line for line in lines if line["kind"] == kind] for kind in ("kill", "fault"))
    return {
        "kills": len(kills),
        "half_written": sum(line["half"] for line in kills),
        "faults": len(faults),
        "calls_failed": sum(line["reached"] for line in faults),
        "failures": sum(not line["passed"] for line in lines),
    }


def selftest(root: Path) -> dict[str, bool]:
    """Whether the audit passes what is good (``none``), and finds each sabotage."""
    found = {}
    for name, sabotage in SABOTAGES.items():
        place = root / f"sabotaged-{name}"
        for number in (1, 2):
            write(place, number)
        sabotage(place)
        found[name] = bool(audit(place, 2).problems) == (name != "none")
    return found


def write(place: Path, number: int, step: int = 0, policy: int = 0) -> Path:
    """A checkpoint; ``step`` and ``policy`` are ``number`` unless given."""
    files = {POLICY: weights(policy or number).pack()}
    return checkpoint.write(place, step or number, state(number), files=files, keep=9)


def _mix(place: Path) -> None:
    mixed = state(2)
    mixed["tensors"]["deep"][-1] = 1
    checkpoint.write(place, 2, mixed, files={POLICY: weights(2).pack()}, keep=9)


def _lose_a_file(place: Path) -> None:
    (place / "step_000000000002" / POLICY).unlink()


def _lose_the_newest(place: Path) -> None:
    shutil.rmtree(place / "step_000000000002")


SABOTAGES: dict[str, Callable[[Path], object]] = {
    "none": lambda place: None,
    "file": _lose_a_file,
    "mixture": _mix,
    "policy": lambda place: write(place, 2, policy=1),
    "older": _lose_the_newest,
    "gone": shutil.rmtree,
}


def said(record: records.Record) -> str:
    """One line about a record."""
    verdict = "passed" if record["passed"] else f"FAILED: {' | '.join(record['problems'])}"
    if record["kind"] == "fault":
        return f"{record['trial']}: {verdict}; {record['reached']} calls failed, one after the other"
    half = ", one half written" if record["half"] else ""
    return f"kill {record['trial']}: {verdict}; after {record['delay_s']} s and write {record['writes']}{half}"


if __name__ == "__main__":
    sys.exit(guarded(main))
