#!/usr/bin/env python
"""Strangers: does a buffer with keys accept anything from whoever has no key, a revoked one, or one of another role or id?

    .venv/bin/python benchmarks/strangers.py               # 20 trials
    .venv/bin/python benchmarks/strangers.py --quick       # one trial, not recorded

What it measures, in each trial: a buffer process with keys takes rows from an honest actor at 5,000 a second. In turn come
all attacks of ``campaign/intruders.py`` (no key, unknown, revoked, of another buffer, the buffer's own; every key in every
role and id that is not its own; sessions that say what only others may), again and again for as long as the trial lasts. What
was accepted is counted from the answers and from the buffer's status. Then a second honest actor's key is revoked while it
writes: the time until its last row was acknowledged and its session was gone is taken; its client, made to go on, must be cut
off. The honest actor's rows a second are compared with those of the same time without attacks.

Before the first trial the same attacks go to a buffer without keys: those that take somebody else's place must be seen to
succeed there, or the count means nothing and the campaign does not start.

How long: 30 s a trial. Each adds one line to docs/results/strangers.jsonl. One that passed is not repeated; a failed one only
on another commit.

The last line on stdout is one JSON object: trials, attacks, accepted, deaths, the least honest throughput during attacks over
that without, and the longest time from a revocation to the end of its session. Exit code 0: all of it is as asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import zmq
from campaign import intruders, provenance, records
from campaign.intruders import ACTOR, ATTACKS, OTHER, attack, make_keys, sabotaged, unaccounted
from campaign.process import guarded
from speed import data
from speed.children import Child

from headrace.actor.outbox import Memory, Outbox
from headrace.actor.uplink import Uplink
from headrace.buffer.query import Observer
from headrace.common.clock import MonotonicClock
from headrace.common.errors import SessionRefused
from headrace.common.wire.key_files import KeyFiles
from headrace.common.wire.link import Link, new_hello
from headrace.common.wire.messages import Goodbye
from headrace.common.wire.network import NetworkConfig

FILE = records.RESULTS / "strangers.jsonl"
TRIALS = 20
RATE, BLOCK = 5000, 25
PHASE_S, QUICK_S = 12.0, 2.0
BARS = {"honest": 0.9, "revoked_s": 2.0}
WAIT_S = 20.0
ANSWER_S = 5.0


class Honest:
    """An actor that writes ``RATE`` rows a second on a thread of its own.

    Attributes:
        acked: rows acknowledged.
        last_ack: when the last of them was (monotonic).
        ended: when its link was refused; none before.
    """

    def __init__(self, name: str, endpoint: str, network: NetworkConfig) -> None:
        self._uplink = Uplink(data.FLAT, Outbox(Memory(4 << 20)), network.fragment_bytes)
        self._link = Link(new_hello("actor", name, spec=data.FLAT.to_dict()), self._uplink, endpoint, network, MonotonicClock())
        self._block = data.block(data.FLAT, BLOCK, np.random.default_rng(0))
        self._stop = threading.Event()
        self.acked, self.last_ack, self.ended = 0, 0.0, 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._link.start()
        self._link.wait_welcome(WAIT_S)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= due and self._uplink.offer(self._block, 0.0):
                self._uplink.executed(BLOCK)
                self._link.wake()
                due = max(due, now - 1.0) + BLOCK / RATE
            executed, pending = self._uplink.position()
            if executed - pending > self.acked:
                self.acked, self.last_ack = executed - pending, time.monotonic()
            try:
                self._link.check()
            except SessionRefused:
                self.ended = time.monotonic()
                return
            time.sleep(0.001)

    def close(self) -> None:
        """Leave."""
        self._stop.set()
        self._thread.join()
        self._link.close(Goodbye(False, "measured"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short trial, not recorded")
    parser.add_argument("--trials", type=int, default=TRIALS, help="how many")
    args = parser.parse_args()
    origin = {**provenance.commit(), "machine": provenance.machine()}
    plan = [(n,) for n in range(1 if args.quick else args.trials)]
    if not args.quick:
        plan = records.unpassed(plan, records.read(FILE), origin["commit"], "trial")
    fired = controls()
    print(f"a buffer without keys lets in {fired} of {len(sabotaged(ATTACKS))}", flush=True)
    if fired < len(sabotaged(ATTACKS)):
        print(json.dumps({"controls_fired": fired, "of": len(sabotaged(ATTACKS))}))
        return 1
    done = []
    for (n,) in plan:
        record = {"trial": n, **trial(QUICK_S if args.quick else PHASE_S), "date": provenance.stamp(), **origin}
        done.append(record)
        if not args.quick:
            records.append(FILE, record)
        print(f"trial {n}: {said(record)}", flush=True)
    known = done if args.quick else list(records.latest(records.read(FILE), "trial").values())
    summary = {**summarise(known), "controls_fired": fired}
    print(json.dumps(summary))
    return 0 if summary["failures"] == 0 and summary["trials"] >= len(plan) else 1


def controls() -> int:
    """How many attacks succeed where nothing keeps them out."""
    fired = 0
    with ExitStack() as stack:
        _, endpoint, _ = start(stack, keyed=False)
        context = stack.enter_context(zmq.Context())
        for what in sabotaged(ATTACKS):
            fired += attack(context, endpoint, None, what) > 0
    return fired


def start(stack: ExitStack, *, keyed: bool) -> tuple[Child, str, KeyFiles]:
    """A buffer; where it listens and its keys."""
    root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    files = intruders.place_of(root)
    options: dict[str, Any] = {"role": "buffer", "place": str(root), "capacity": 100_000, "block": 1}
    if keyed:
        files.new(ACTOR, "actor")
        options["keys"] = str(files.path)
    buffer = stack.enter_context(Child("ours.py", options))
    return buffer, buffer.ready["endpoint"], files


def trial(seconds: float) -> records.Record:
    """Quiet, attacks for ``seconds``, quiet, and a revocation."""
    with ExitStack() as stack:
        buffer, endpoint, files = start(stack, keyed=True)
        secrets = make_keys(files)
        network = NetworkConfig(keys=str(files.path))
        observer = Observer(endpoint, network)
        stack.callback(observer.close)
        honest = Honest(ACTOR, endpoint, network)
        stack.callback(honest.close)
        context = stack.enter_context(zmq.Context())
        wait(lambda: honest.acked > RATE // 10)
        before, quiet = observer.status(ANSWER_S), rate(honest, seconds / 2)
        begun, acked, count, accepted = time.monotonic(), honest.acked, 0, 0
        while time.monotonic() < begun + seconds or count < len(ATTACKS):
            what = ATTACKS[count % len(ATTACKS)]
            accepted += attack(context, endpoint, secrets[what.key], what)
            count += 1
        attacked = (honest.acked - acked) / (time.monotonic() - begun)
        quiet = (quiet + rate(honest, seconds / 2)) / 2
        problems = unaccounted(before, observer.status(ANSWER_S))
        revoked_s = revocation(files, endpoint, network, observer)
        try:
            buffer.window(0.1)
            deaths = 0
        except Exception as error:
            deaths, problems = 1, [*problems, str(error)]
        refused = {k: n for k, n in observer.status(ANSWER_S)["counters"].items() if "key-" in k} if not deaths else {}
    found = {"attacks": count, "accepted": accepted, "deaths": deaths, "problems": problems, "refused": refused}
    shares = {"quiet_rows_s": round(quiet), "honest": round(attacked / quiet, 4), "revoked_s": round(revoked_s, 3)}
    passed = not (accepted or deaths or problems) and shares["honest"] >= BARS["honest"] and revoked_s <= BARS["revoked_s"]
    return {**found, **shares, "passed": passed}


def revocation(files: KeyFiles, endpoint: str, network: NetworkConfig, observer: Observer) -> float:
    """Seconds from the revocation of a key that writes to the end of all that it can do."""
    victim = Honest(OTHER, endpoint, network)
    try:
        wait(lambda: victim.acked > RATE // 10)
        files.revoke(OTHER)
        begun = time.monotonic()
        wait(lambda: victim.ended > 0 and OTHER not in [a["id"] for a in observer.status(ANSWER_S)["actors"]])
        return max(victim.ended, victim.last_ack) - begun
    finally:
        victim.close()


def rate(honest: Honest, seconds: float) -> float:
    """Acknowledged rows a second."""
    begun, acked = time.monotonic(), honest.acked
    time.sleep(seconds)
    return (honest.acked - acked) / (time.monotonic() - begun)


def wait(holds: Any) -> None:
    """Wait until something holds; raises :class:`TimeoutError`."""
    end = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {WAIT_S:g} s")
        time.sleep(0.01)


def summarise(known: list[records.Record]) -> records.Record:
    """Over all trials."""
    if not known:
        return {"trials": 0, "failures": 0}
    return {
        "trials": len(known),
        "failures": sum(not r["passed"] for r in known),
        **{name: sum(r[name] for r in known) for name in ("attacks", "accepted", "deaths")},
        "honest_least": min(r["honest"] for r in known),
        "honest_median": median(r["honest"] for r in known),
        "revoked_s_max": max(r["revoked_s"] for r in known),
    }


def said(record: records.Record) -> str:
    """A trial in one line."""
    state = "passed" if record["passed"] else f"FAILED {record['problems']}"
    return (
        f"{record['attacks']} attacks, {record['accepted']} accepted, honest {record['honest']:.1%} of {record['quiet_rows_s']}"
        f" rows/s, revoked in {record['revoked_s']} s: {state}"
    )


if __name__ == "__main__":
    sys.exit(guarded(main))
