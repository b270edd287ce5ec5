"""P4: a row enters once, however often it is sent: acks get lost, blocks come twice and much later, buffers are killed."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from campaign import numbered, target
from campaign.numbered import Rows, Verdict, Written
from campaign.promise import SUM, Outcome, Part, Promise, Trial, at_least, never, told
from campaign.target import Target
from campaign.writing import ACKED, STREAM, WRITERS

from headrace.buffer import generations
from headrace.buffer.files import LEDGER
from headrace.buffer.ledger import Ledger
from headrace.buffer.pool import SACReplayPool
from headrace.buffer.query import status
from headrace.common.wire.messages import Ack, BlockHead
from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.tampering import Act, Faults, Rule, Way

CAPACITY = 1000
RATE = 40_000.0  # rows a second of all writers
RESENDS, QUICK_RESENDS = 100_000, 3_000
LARGEST = 32  # rows of a message, so that there are many
AGE = 1000  # messages that a replayed one is old: 18 rows each on average, so more than ten capacities
DATA, ACKS = frozenset({BlockHead.TAG}), frozenset({Ack.TAG})
RULES = (
    Rule(Act.DUPLICATE, Way.UP, DATA, rate=0.1),
    Rule(Act.REPLAY, Way.UP, DATA, rate=0.05, age=AGE),
)
LOSSY = Faults((*RULES, Rule(Act.DROP, Way.DOWN, ACKS, rate=0.3)))
DEAF = Faults((*RULES, Rule(Act.DROP, Way.DOWN, ACKS)))  # no ack comes through: a kill is between insert and ack
BETWEEN_S = (4.0, 8.0)
ANSWER_S = 10.0
DEADLINE_S = 600.0
ROWS = 3 * CAPACITY  # of the control's pool
COUNTED = ("dropped", "duplicated", "replayed")


def resends(trial: Trial) -> Outcome:
    """Until enough rows came again: blocks and acks are tampered with, connections reset, and the buffer killed."""
    place, goal = Path(trial.place), QUICK_RESENDS if trial.quick else RESENDS
    with contextlib.ExitStack() as stack:
        proxies: list[Proxy] = []

        def through(endpoint: str) -> list[str]:
            proxies.extend(stack.enter_context(Proxy(endpoint, seed=trial.number * WRITERS + i)) for i in range(WRITERS))
            return [proxy.endpoint for proxy in proxies]

        aim = stack.enter_context(contextlib.closing(Target(place, RATE, 0, through=through, largest=LARGEST)))
        aim.restart(CAPACITY)
        sizes, verdict, figures = [ledger_bytes(aim)], Verdict(), dict.fromkeys(("kills", "unacked_at_kill"), 0)
        end, seen = time.monotonic() + DEADLINE_S, 0
        while verdict.passed and seen < goal and time.monotonic() < end:
            for proxy in proxies:
                proxy.set(LOSSY)
            time.sleep(float(trial.rng.uniform(*BETWEEN_S)))
            proxies[figures["kills"] % WRITERS].reset()
            for proxy in proxies:
                proxy.set(DEAF)
            aim.wait(lambda: counters(aim)["rows_accepted"] > aim.progress.acked(), "rows that nobody knows to be in")
            figures["unacked_at_kill"] += counters(aim)["rows_accepted"] - aim.progress.acked()
            aim.kill()
            figures["kills"] += 1
            verdict += audit(aim, place / "copy")
            for proxy in proxies:
                proxy.set(LOSSY)
            aim.restart(CAPACITY)
            seen = counters(aim)["rows_duplicate"]
            sizes.append(ledger_bytes(aim))
        figures["resent_rows"] = seen
        figures["acked_rows"] = int(aim.progress.total(ACKED))
        figures |= {f"messages_{name}": sum(proxy.counts()[name] for proxy in proxies) for name in COUNTED}
    faults = {name: getattr(verdict, name) for name in numbered.FAULTS}
    figures["ledger_growth_bytes"] = max(sizes) - sizes[0]
    figures["ledger_bytes_per_actor"] = Ledger.nbytes(2) - Ledger.nbytes(1)
    return Outcome({**figures, **faults}, verdict.problems)


def counters(aim: Target) -> Mapping[str, int]:
    """Of the running buffer's pool."""
    found: Mapping[str, int] = status(aim.endpoint, ANSWER_S)["counters"]
    return found


def audit(aim: Target, copy: Path) -> Verdict:
    """As :func:`campaign.target.audit`, of a pool in which a writer may have no row left: the ledger says how far it is."""
    known = aim.progress.known()
    shutil.copytree(aim.place.pool, copy, ignore=shutil.ignore_patterns("*lock"))
    try:
        with SACReplayPool(CAPACITY, path=copy, sampling=target.SAMPLING) as pool:
            last = [pool.last_seq(numbered.actor_id(i), int(cells[STREAM])) for i, cells in enumerate(known)]
        lost = int(np.maximum(0, known[:, ACKED] - last).sum())
        known[:, ACKED] = last
        return target.audit(copy, aim.progress, known) + Verdict(lost=lost)
    finally:
        shutil.rmtree(copy)


def ledger_bytes(aim: Target) -> int:
    """Size of the file that says what has come in."""
    found = generations.read(aim.place.pool)
    return 0 if found is None else (found[1] / LEDGER).stat().st_size


def control(place: Path) -> dict[str, bool]:
    """Whether rows that enter a second time are found, while they are in the pool and when they are long evicted."""
    honest, forgetful = Ledger.last, lambda ledger, actor, stream: 0
    found = {"nothing": judged(honest, 1, 1).passed}
    for kind, first in (("again at once", ROWS - 20), ("again when evicted", 1)):
        found[kind] = not judged(forgetful, first, 10).passed
    return found


def judged(last: Any, first: int, rows: int) -> Verdict:
    """The verdict on a pool that got some rows again, once its ledger answers by ``last``."""
    with SACReplayPool(CAPACITY, spec=numbered.SPEC) as pool:
        pool.insert(numbered.block(0, 1, ROWS), numbered.actor_id(0), 1, 1)
        with mock.patch.object(Ledger, "last", last):
            pool.insert(numbered.block(0, first, rows), numbered.actor_id(0), 1, first)
        rows_there = Rows(pool.gather(np.arange(pool.tail, pool.head)), np.zeros(pool.head - pool.tail, bool))
        found, counts = numbered.collect([rows_there], pool.actors()), pool.counters()
    return numbered.judge(found, {(0, 1): Written(ROWS, ROWS)}, counts)


PROMISE = Promise(
    "P4",
    "A row of an actor's stream enters the pool once, for ever, whatever is sent again and whoever is killed.",
    (
        Part(
            "resends",
            3,
            resends,
            (
                *at_least("resent_rows", 200_000, SUM),
                *never(*numbered.FAULTS, "ledger_growth_bytes"),
                *at_least("kills", 1),
                *at_least("unacked_at_kill", 1),
                *told("acked_rows", "ledger_bytes_per_actor", *(f"messages_{name}" for name in COUNTED), over=SUM),
            ),
            control=control,
        ),
    ),
)
