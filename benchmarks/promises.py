#!/usr/bin/env python
"""Promises: is what headrace promises true, by trials that try to break it?

    .venv/bin/python benchmarks/promises.py --list               # the promises, their trials and their commands
    .venv/bin/python benchmarks/promises.py                      # all trials that are not recorded yet
    .venv/bin/python benchmarks/promises.py --only P6,P21/ports  # of some promises, or some parts of them
    .venv/bin/python benchmarks/promises.py --minutes 30         # as many as begin within that time
    .venv/bin/python benchmarks/promises.py --quick              # few and small ones, not recorded
    .venv/bin/python benchmarks/promises.py --selftest           # only: are planted faults found?

What it measures: each promise is a module in benchmarks/promised/, which says what its trials do; how to add one is written
there. A promise that has a script of its own is listed with its command, and told from its records. Where a part can plant
faults, each must be found before a trial of it counts.

How long: hours in all; --list says how many trials, each line of progress how long one took. Each trial adds one line to
docs/results/promises.jsonl, with its seed, figures and bars. One that passed is not repeated; a failed one only on another
commit, so that failures are not tried away. With changes that belong to no commit only --quick runs.

The last line on stdout is one JSON object: part -> state, trials, failures, the 95 % upper bound of the probability that a
trial fails, and its figures. Exit code 0: all trials of the chosen parts were made, and every bar is met; 2: this machine
cannot make some of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from campaign import provenance, records
from campaign.choosing import add_only, plan_of
from campaign.gate import PASSED
from campaign.process import ProcessFailed, Unable, guarded
from campaign.promise import Outcome, Part, Promise, Tally, Trial
from promised import parts_of, promises

from headrace.common.errors import HeadraceError

FILE = records.RESULTS / "promises.jsonl"
WRONG = (
    AssertionError,
    OSError,
    ProcessFailed,
    HeadraceError,
    subprocess.SubprocessError,
)  # what a trial may raise as a problem
UNABLE = 2


def main() -> int:
    known = promises()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_only(parser, [*known, *parts_of(known)], "promise")
    parser.add_argument("--list", action="store_true", help="print promises, trials and commands, and exit")
    parser.add_argument("--quick", action="store_true", help="few and small trials, not recorded")
    parser.add_argument("--selftest", action="store_true", help="plant the faults of the chosen parts, and exit")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after this time (minutes)")
    parser.add_argument("--place", type=Path, help="directory for the files of trials, default: a temporary one")
    args = parser.parse_args()
    chosen = {name: part for name, part in parts_of(known).items() if name in args.only or name.split("/")[0] in args.only}
    if args.list:
        print("\n".join(listed(known)))
        return 0
    campaign = Campaign(chosen, quick=args.quick, until=time.monotonic() + 60 * args.minutes)
    with tempfile.TemporaryDirectory(dir=args.place, prefix="headrace-promises-", ignore_cleanup_errors=True) as root:
        if args.selftest:
            found = {name: campaign.control(Path(root), name) for name in chosen}
            print(json.dumps({"selftest": "passed" if all(found.values()) else "FAILED"}))
            return 0 if all(found.values()) else 1
        if campaign.origin["dirty"] and not args.quick:
            print("promises.py: there are changes that belong to no commit; commit them, or use --quick", file=sys.stderr)
            return UNABLE
        unable = campaign.run(Path(root))
    said = campaign.tallies()
    print(json.dumps({name: summary(tally) for name, tally in said.items()}))
    return UNABLE if unable else 0 if all(tally.state == PASSED for tally in said.values()) else 1


class Campaign:
    """The trials of some parts, one after the other, with the parts spread evenly.

    Args:
        parts: ``P12/name`` -> part.
        quick: make few and small ones, and record none.
        until: monotonic time after which none begins.

    Attributes:
        origin: commit and machine of all records.
    """

    def __init__(self, parts: Mapping[str, Part], *, quick: bool, until: float) -> None:
        self._parts, self._quick, self._until = parts, quick, until
        self.origin: records.Record = {**provenance.commit(), "machine": provenance.machine()}
        self._known = [] if quick else records.read(FILE)
        self._controls: dict[str, bool] = {}

    def run(self, root: Path) -> bool:
        """Make what is to do; whether this machine could not make some of it."""
        plan = self._plan()
        print(f"{len(plan)} trials to do", flush=True)
        unable: set[str] = set()
        for count, (name, number) in enumerate(plan, 1):
            if time.monotonic() >= self._until:
                print(f"[{count}/{len(plan)}] the time is over; the same command goes on from here", flush=True)
                break
            if name in unable or not self._controlled(root, name):
                continue
            try:
                record = self._record(root, name, number)
            except Unable as error:
                print(f"[{count}/{len(plan)}] {name}: cannot be made here: {error}", file=sys.stderr)
                unable.add(name)
                continue
            self._known.append(record)
            if not self._quick:
                records.append(FILE, record)
            print(f"[{count}/{len(plan)}] {line(record)}", flush=True)
        return bool(unable)

    def control(self, root: Path, name: str) -> bool:
        """Plant the faults of one part; whether each is found."""
        control = self._parts[name].control
        if control is None:
            return True
        with scratch(root) as place:
            found = dict(control(place))
        print(f"{name}: planted faults found: {found}", flush=True)
        return bool(found) and all(found.values())

    def tallies(self) -> dict[str, Tally]:
        """What the records of each part say."""
        return {name: part.tally(name.split("/")[0], self._known) for name, part in self._parts.items()}

    def _plan(self) -> list[tuple[str, int]]:
        if self._quick:
            return plan_of({name: part.quick for name, part in self._parts.items()})
        whole = [(*name.split("/"), n) for name, n in plan_of({name: part.trials for name, part in self._parts.items()})]
        todo = records.unpassed(whole, self._known, self.origin["commit"], "promise", "part", "trial")
        return [(f"{promise}/{part}", n) for promise, part, n in todo]

    def _controlled(self, root: Path, name: str) -> bool:
        if name not in self._controls:
            self._controls[name] = self.control(root, name)
        return self._controls[name]

    def _record(self, root: Path, name: str, number: int) -> records.Record:
        (promise, _), part = name.split("/"), self._parts[name]
        seed, begun = part.seed(promise, number), time.monotonic()
        with scratch(root) as place:
            try:
                left = (self._until - begun) / 60
                outcome = part.run(Trial(place, number, np.random.default_rng(seed), self._quick, left))
            except WRONG as error:
                outcome = Outcome({}, (f"{type(error).__name__}: {error}",))
            problems = [placeless(text, place) for text in part.problems(outcome)]
        return {
            "promise": promise,
            "part": part.name,
            "trial": number,
            "seed": seed,
            "figures": {key: plain(value) for key, value in outcome.figures.items() if math.isfinite(value)},
            "bar": part.asked,
            "passed": not problems,
            "problems": problems,
            "seconds": round(time.monotonic() - begun, 1),
            **self.origin,
            "date": provenance.stamp(),
        }


@contextlib.contextmanager
def scratch(root: Path) -> Iterator[Path]:
    """An empty directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=root, prefix="trial-", ignore_cleanup_errors=True) as place:
        yield Path(place)


def plain(value: float) -> float:
    """A figure as it is recorded: whole, or of six digits."""
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")


def placeless(text: str, place: Path) -> str:
    """A problem without the directories of this machine."""
    return text.replace(str(place), "").replace(str(records.ROOT), "")


def summary(tally: Tally) -> dict[str, Any]:
    """What the last line of output says of one part."""
    bound = None if tally.bound is None else round(tally.bound, 4)
    counts = {"trials": tally.trials, "of": tally.wanted, "failures": tally.failures, "failure_bound_95": bound}
    return {"state": tally.state, **counts, "figures": tally.figures}


def line(record: records.Record) -> str:
    """A trial in one line."""
    figures = ", ".join(f"{name} {value:g}" for name, value in record["figures"].items())
    verdict = "passed" if record["passed"] else f"FAILED: {' | '.join(record['problems'])}"
    return f"{record['promise']}/{record['part']} {record['trial']}: {verdict}; {figures}; {record['seconds']} s"


def listed(known: Mapping[str, Promise]) -> Iterator[str]:
    """What there is."""
    for promise in known.values():
        yield f"{promise.number}: {promise.text}"
        for row in promise.parts:
            trials = f"{row.trials} trials" if isinstance(row, Part) else f"recorded in {row.file}"
            yield f"    {row.name:<20} {trials:<34} {row.command(promise.number)}"


if __name__ == "__main__":
    sys.exit(guarded(main))
