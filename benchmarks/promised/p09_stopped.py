"""P9: a process that is stopped harms no other one, and has the newest weights soon after it goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from campaign.paced_job import BATCHES_S, PUBLISHES_S, RATE, PacedJob, Window, job, paced, played
from campaign.promise import Bar, Outcome, Part, Promise, Trial, at_least, at_most, told

ROBOTS = [f"robot-{n}" for n in range(4)]
STOPPED_S, QUICK_S = 60.0, 4.0
BEFORE_S = 30.0
WITHIN_S, HEARD_S = 30.0, 1.0
SHARE = 0.95
GROWN_MB = 8.0
VERSION_UPDATES = BATCHES_S / PUBLISHES_S  # from one version to the next


def stopped(trial: Trial, *, who: str) -> Outcome:
    """SIGSTOP one process for a minute, then SIGCONT."""
    place = Path(trial.place)
    with job(place, paced(place, learner=True)) as here:
        here.run.buffer()
        for name in ROBOTS:
            here.run.actor(name)
        here.learner()
        for name in ROBOTS:
            here.wait(lambda name=name: current(here, name), f"weights of {name}")
        before = here.watch(QUICK_S if trial.quick else BEFORE_S)
        updates, others = here.run.status()["updates"], [name for name in here.run.processes if name != who]
        memory = here.memory_mb(others)
        here.run.processes[who].send_signal(signal.SIGSTOP)
        try:
            during = here.watch(QUICK_S if trial.quick else STOPPED_S)
        finally:
            here.run.processes[who].send_signal(signal.SIGCONT)
        grown = here.memory_mb(others) - memory
        figures = {"memory_mb": float(grown.max()), **pace(here, [name for name in ROBOTS if name != who], before, during)}
        if who in ROBOTS:
            figures["learner_rate"] = (here.run.status()["updates"] - updates) / during.seconds / BATCHES_S
        figures |= recovery(here, who, during)
        return Outcome(figures)


def pace(here: PacedJob, robots: list[str], before: Window, during: Window) -> dict[str, float]:
    """What a fault meant for the control loops of robots that it did not hit."""
    late, usual = (here.period_p99_ms(robots, window) for window in (during, before))
    return {
        "others_rate": here.slowest(robots, before, during),
        "period_p99_ms": late,
        "period_p99_change_ms": late - usual,
    }


def recovery(here: PacedJob, who: str, during: Window) -> dict[str, float]:
    """How long after it went on a robot acts on the newest weights; with a stopped learner or buffer, all of them."""
    robots = [who] if who in ROBOTS else ROBOTS
    for name in robots:
        here.wait(lambda name=name: current(here, name), f"newest weights of {name}", WITHIN_S)
    return {"newest_weights_s": time.monotonic() - during.end}


def current(here: PacedJob, name: str) -> bool:
    """Whether a robot is at most one version behind by its last heartbeat, and that is not old."""
    return is_current(here.status(), name)


def is_current(status: Mapping[str, Any], name: str) -> bool:
    """As :func:`current`, by a status."""
    robot = next((a for a in status.get("actors", ()) if a["id"] == name), None)
    if robot is None or status["learner"] is None or robot["version"][0] == 0:
        return False
    return bool(robot["silent_s"] < HEARD_S and robot["lag_updates"] <= 1.5 * VERSION_UPDATES)


def control(place: Path) -> Mapping[str, bool]:
    """Whether a loop that falls behind, one that stumbles, memory that grows and weights of long ago are found."""
    even = np.arange(0.0, 20.0, 1 / RATE)
    slowed = np.concatenate([even[even < 10], np.arange(10.0, 20.0, 1.1 / RATE)])
    stumbling = even + np.where((even >= 10) & (np.arange(len(even)) % 20 == 0), 0.004, 0.0)
    before, during = Window(0.0, 10.0), Window(10.0, 20.0)

    def found(ticks: np.ndarray[Any, Any], **other: float) -> bool:
        here = played(place, {ROBOTS[0]: even, ROBOTS[1]: ticks})
        figures = {"memory_mb": 0.0, "newest_weights_s": 0.1, **pace(here, ROBOTS[:2], before, during), **other}
        return bool(Part("buffer", 1, lambda trial: Outcome({}), BARS).problems(Outcome(figures)))

    def acts(lag: float, silent_s: float) -> bool:
        robot = {"id": "r", "version": [1, 5], "silent_s": silent_s, "lag_updates": lag}
        return is_current({"learner": {}, "actors": [robot]}, "r")

    return {
        "nothing": not found(even) and acts(VERSION_UPDATES, 0.1),
        "slowed": found(slowed),
        "stumbling": found(stumbling),
        "grown": found(even, memory_mb=2 * GROWN_MB),
        "late": found(even, newest_weights_s=3.0),
        "two versions behind": not acts(2 * VERSION_UPDATES, 0.1),
        "heard of long ago": not acts(0.0, 2 * HEARD_S),
    }


BARS = (
    *at_least("others_rate", SHARE),
    *at_most("memory_mb", GROWN_MB),
    Bar("period_p99_change_ms", "each", -1.0, 1.0),
    *at_most("newest_weights_s", 2.0),
    *told("period_p99_ms"),
)

PROMISE = Promise(
    "P9",
    "A process that is stopped harms no other one, and acts on the newest weights soon after it goes on.",
    (
        Part("learner", 3, partial(stopped, who="learner"), BARS, control=control),
        Part("robot", 3, partial(stopped, who=ROBOTS[0]), (*BARS, *at_least("learner_rate", SHARE)), control=control),
        Part("buffer", 3, partial(stopped, who="buffer"), BARS, control=control),
    ),
)
