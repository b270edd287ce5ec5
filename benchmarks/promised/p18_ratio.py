"""P18: samples per insert stay at their target whichever side is slow, and no edge of the settings stands still.

held    the ratio is held from both sides; actors, then the learner, are slowed down for half of the time each.
paused  all actors are stopped by SIGSTOP for a while, and go on.
edges   batches as large as the fill, a fill as large as the pool, a ratio far below and far above 1: each run comes to its end.

Samples per insert are batch_size times updates per env step after the minimum fill.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.promise import Bar, Outcome, Part, Promise, Trial, between, never, told
from helpers.roles import Roles, roles, scripted

from headrace.common.config import merge

BATCH, TARGET, TOLERANCE = 64, 8.0, 0.02
RATIO = TARGET / BATCH
MINUTES, QUICK_S = 10.0, 30.0
PAUSE_S, QUICK_PAUSE_S = 60.0, 6.0
START_S, END_S = 60.0, 120.0
ACTORS = ("actor-0", "actor-1")
LEAD = 128
LEARNER = "canary"
SLOW_S = 0.02  # a step of a slow actor; a fast one has no such pause
DUTY_S = 0.25  # a slow learner is stopped for this long, and goes on for as long
HELD: dict[str, Any] = {
    "pacing": {"env_steps": 0, "min_fill": 256, "random_steps": 0, "ratio": RATIO, "lead_steps": LEAD},
    "learner": {"batch_size": BATCH},
    "pool": {"capacity": 100_000},
}
EDGES: dict[str, dict[str, Any]] = {
    "batch = fill": {"pacing": {"min_fill": 64}, "learner": {"batch_size": 64}},
    "fill = pool": {"pacing": {"min_fill": 256}, "pool": {"capacity": 256}},
    "batch = fill = pool": {"pacing": {"min_fill": 64}, "pool": {"capacity": 64}, "learner": {"batch_size": 64}},
    "ratio 0.01": {"pacing": {"ratio": 0.01}},
    "ratio 20": {"pacing": {"ratio": 20.0, "env_steps": 400}},
    "lead of 1": {"pacing": {"lead_steps": 1, "min_fill": 64, "env_steps": 400}},
    "blocks as large as the pool": {"pacing": {"min_fill": 64}, "pool": {"capacity": 64}, "actor": {"block_rows": 64}},
}


def held(trial: Trial) -> Outcome:
    """One run, half of it with slow actors, half of it with a slow learner."""
    half = QUICK_S if trial.quick else MINUTES * 30
    with roles(trial.place, scripted(**HELD)) as run:
        run.buffer()
        for name in ACTORS:
            run.actor(name, "--env.kwargs.delay_s", str(SLOW_S))
        run.canary(BATCH, 50, 1e6)
        run.wait(lambda s: s["updates"] > 0, START_S)
        slow_actors = measure(run, half)
        for name in ACTORS:
            run.processes[name].send_signal(signal.SIGTERM)
            run.processes[name].wait(30)
            run.actor(name)
        run.wait(lambda s: len(s["actors"]) == len(ACTORS), START_S)
        slow_learner = measure(run, half, slowed=LEARNER)
        whole = spi(run.status())
        run.stop()
    return Outcome({"slow_actors": slow_actors, "slow_learner": slow_learner, "whole": whole})


def paused(trial: Trial) -> Outcome:
    """One pause."""
    with roles(trial.place, scripted(**HELD)) as run:
        run.buffer()
        for name in ACTORS:
            run.actor(name)
        run.canary(BATCH, 50, 1e6)
        run.wait(lambda s: s["updates"] > 50, START_S)
        time.sleep(float(trial.rng.uniform(0, 2)))
        for name in ACTORS:
            os.kill(run.processes[name].pid, signal.SIGSTOP)
        time.sleep(0.2)  # what was under way arrives
        before = run.status()
        time.sleep(QUICK_PAUSE_S if trial.quick else PAUSE_S)
        during = run.status()["updates"] - before["updates"]
        for name in ACTORS:
            os.kill(run.processes[name].pid, signal.SIGCONT)
        goal = before["env_steps"] + 500
        figures = {"updates_in_pause": during, "beyond_owed": beyond_owed(before, during)}
        try:
            run.wait(lambda s: s["env_steps"] > goal and s["updates"] > before["updates"] + during, START_S)
        except AssertionError as error:
            return Outcome({**figures, "stuck": 1}, (str(error),))
        run.stop()
    return Outcome({**figures, "stuck": 0})


def edges(trial: Trial) -> Outcome:
    """One edge, to the end of its run."""
    name, changes = list(EDGES.items())[trial.number % len(EDGES)]
    base = {"pacing": {"env_steps": 2000, "random_steps": 0}, "learner": {"batch_size": 32}}
    with roles(trial.place, scripted(**merge(base, changes))) as run:
        run.buffer()
        run.actor(ACTORS[0])
        run.canary(merge(base, changes)["learner"]["batch_size"], 50, 1e6)
        try:
            last = run.wait(lambda s: s["phase"] == "done", END_S, watch=("buffer", ACTORS[0]))
        except AssertionError as error:
            return Outcome({"stuck": 1}, (f"{name}: {error}",))
        run.stop()
    return Outcome({"stuck": 0, "ratio_off": abs(last["achieved_ratio"] / last["target_ratio"] - 1)})


def beyond_owed(before: Mapping[str, Any], during: int) -> int:
    """Of ``during`` updates without a further row, those that the rows of ``before`` did not allow yet."""
    owed = int(RATIO * max(0, before["env_steps"] - HELD["pacing"]["min_fill"])) - before["updates"]
    return max(0, during - max(0, owed))


def measure(run: Roles, seconds: float, slowed: str = "") -> float:
    """Samples per insert over a time, in which one process is slowed down."""
    begin, end = run.status(), time.monotonic() + seconds
    while time.monotonic() < end:
        if slowed:
            os.kill(run.processes[slowed].pid, signal.SIGSTOP)
            time.sleep(DUTY_S)
            os.kill(run.processes[slowed].pid, signal.SIGCONT)
        time.sleep(DUTY_S)
    last = run.status()
    steps = last["env_steps"] - begin["env_steps"]
    assert steps > 0, "no env step was made"
    return float(BATCH * (last["updates"] - begin["updates"]) / steps)


def spi(status: dict[str, Any]) -> float:
    """Samples per insert of a whole run."""
    return float(BATCH * status["updates"] / (status["env_steps"] - HELD["pacing"]["min_fill"]))


def control(place: Path) -> Mapping[str, bool]:
    """Whether a ratio that is 3 % off, on either side, and updates that nothing allows are found."""
    steps = HELD["pacing"]["min_fill"] + 8000

    def found(bars: Sequence[Bar], figures: Mapping[str, float]) -> bool:
        return any(bar.broken_by(figures) for bar in bars)

    def off(share: float) -> bool:
        right = {"slow_actors": TARGET, "slow_learner": TARGET}
        return found(HELD_BARS, {**right, "whole": spi({"env_steps": steps, "updates": 1000 * share})})

    def beyond(during: int) -> bool:
        return found(PAUSED_BARS, {"stuck": 0, "beyond_owed": beyond_owed({"env_steps": steps, "updates": 990}, during)})

    return {
        "nothing": not off(1.0) and not beyond(10),
        "too few": off(0.97),
        "too many": off(1.03),
        "one that nothing allows": beyond(11),
        "stuck": found(PAUSED_BARS, {"stuck": 1, "beyond_owed": 0}),
    }


LOW, HIGH = TARGET * (1 - TOLERANCE), TARGET * (1 + TOLERANCE)

HELD_BARS = tuple(bar for name in ("slow_actors", "slow_learner", "whole") for bar in between(name, LOW, HIGH))
PAUSED_BARS = (*never("beyond_owed", "stuck"), *told("updates_in_pause"))
PROMISE = Promise(
    "P18",
    "Samples per insert stay at their target within 2 % whichever side is slow, and no setting stands still.",
    (
        Part("held", 3, held, HELD_BARS, control=control),
        Part("paused", 10, paused, PAUSED_BARS, control=control),
        Part("edges", len(EDGES), edges, (*never("stuck"), *told("ratio_off")), quick=len(EDGES)),
    ),
)
