"""P9: a process that is stopped harms no other one, and has the newest weights soon after it goes on."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

from campaign.paced_job import BATCHES_S, PUBLISHES_S, PacedJob, Window, job, paced
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
        robots = [name for name in ROBOTS if name != who]
        figures = {
            "others_rate": here.slowest(robots, before, during),
            "memory_mb": float(grown.max()),
            "period_p99_ms": here.period_p99_ms(robots, during),
            "period_p99_change_ms": here.period_p99_ms(robots, during) - here.period_p99_ms(robots, before),
        }
        if who in ROBOTS:
            figures["learner_rate"] = (here.run.status()["updates"] - updates) / during.seconds / BATCHES_S
        figures |= recovery(here, who, during)
        return Outcome(figures)


def recovery(here: PacedJob, who: str, during: Window) -> dict[str, float]:
    """How long after it went on a robot acts on the newest weights; with a stopped learner or buffer, all of them."""
    robots = [who] if who in ROBOTS else ROBOTS
    for name in robots:
        here.wait(lambda name=name: current(here, name), f"newest weights of {name}", WITHIN_S)
    return {"newest_weights_s": time.monotonic() - during.end}


def current(here: PacedJob, name: str) -> bool:
    """Whether a robot is at most one version behind by its last heartbeat, and that is not old."""
    status = here.status()
    robot = next((a for a in status.get("actors", ()) if a["id"] == name), None)
    if robot is None or status["learner"] is None or robot["version"][0] == 0:
        return False
    return bool(robot["silent_s"] < HEARD_S and robot["lag_updates"] <= 1.5 * VERSION_UPDATES)


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
        Part("learner", 3, partial(stopped, who="learner"), BARS),
        Part("robot", 3, partial(stopped, who=ROBOTS[0]), (*BARS, *at_least("learner_rate", SHARE))),
        Part("buffer", 3, partial(stopped, who="buffer"), BARS),
    ),
)
