"""P6: a robot that is cut off goes on, and everything it did arrives once and in order when the link is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from campaign.cables import Cable
from campaign.own_loop import CONFIG, ROBOT, OwnLoop
from campaign.paced_job import RATE, PacedJob, Window, account, job, paced
from campaign.promise import Outcome, Part, Promise, Trial, at_least, at_most, never, told

from headrace.launch.chaos.proxy import Proxy
from headrace.launch.chaos.tampering import Faults

ROBOTS = [f"robot-{n}" for n in range(4)]
CUT_OFF, OTHERS = ROBOTS[0], ROBOTS[1:]
BEFORE_S, QUICK_BEFORE_S = 20.0, 3.0
FLAP_S, FLAPS, HALF_OPEN = 3.0, 50, 10
LATE_S = 120.0
TOLERANCE = 0.05
WIDE, WIDE_STEPS, WIDE_ROWS, NARROW = 8_000_000, 50, 64, 2e6  # bytes of a row, rows, those of the pool, bits a second

Fault = Callable[[], None]


def down(trial: Trial, *, seconds: float) -> Outcome:
    """The cable of one robot is pulled for so long."""
    with Cable() as cable:

        def fault() -> None:
            cable.pull()
            time.sleep(min(seconds, 3.0) if trial.quick else seconds)
            cable.plug()

        return cut_off(trial, cable.host, {"before": cable.words}, fault)


def flapping(trial: Trial) -> Outcome:
    """The cable of one robot is pulled and plugged in again and again, every 3 s."""
    with Cable() as cable:

        def fault() -> None:
            for _ in range(1 if trial.quick else FLAPS):
                cable.pull()
                time.sleep(FLAP_S)
                cable.plug()
                time.sleep(FLAP_S)

        return cut_off(trial, cable.host, {"before": cable.words}, fault)


def half_open(trial: Trial) -> Outcome:
    """The connection of one robot swallows everything, and nobody is told; again and again, at random times."""
    place = Path(trial.place)
    with job(place, paced(place, learner=False)) as here, Proxy(here.run.endpoint) as proxy:

        def fault() -> None:
            for _ in range(1 if trial.quick else HALF_OPEN):
                proxy.set(Faults(dead=True))
                proxy.set(Faults())  # what is dialled from now on works
                time.sleep(float(trial.rng.uniform(5.0, 10.0)))

        return measured(trial, here, {"through": proxy.endpoint}, fault)


def beyond(trial: Trial) -> Outcome:
    """A robot program is cut off for longer than its memory lasts, and drops its oldest episodes: each is counted."""
    with job(trial.place, CONFIG) as here, Proxy(here.run.endpoint) as proxy:
        here.run.buffer()
        robot = OwnLoop(here.run, proxy.endpoint)
        steps = 2000 if trial.quick else 10_000
        robot.start(steps, None, outbox_bytes=1 << 16, when_full="drop_oldest")
        here.wait(lambda: here.status().get("env_steps", 0) > 50, "rows of the robot")
        proxy.set(Faults(held=True))
        robot.wait(here.wait, steps // 2)
        proxy.set(Faults())
        here.wait(lambda: here.run.processes[ROBOT].poll() == 0, "end of the robot", LATE_S)
        here.run.stop()
        counts = robot.counts()
        kept = counts["executed"] - counts["dropped"]
        found = robot.account(kept, kept)
    return Outcome({**found, "dropped": counts["dropped"]})


def narrow(trial: Trial) -> Outcome:
    """A robot program makes rows of 8 MB, one a second, behind an uplink of 2 Mbit/s, which takes 32 s for each."""
    steps, wide = (4, 250_000) if trial.quick else (WIDE_STEPS, WIDE)
    pool, pacing = {"capacity": WIDE_ROWS, "min_block_rows": 1}, {**CONFIG["pacing"], "min_fill": WIDE_ROWS}
    config = {**CONFIG, "pool": pool, "pacing": pacing, "network": {"insecure": True}}
    with Cable() as cable, job(trial.place, config, cable.host) as here:
        here.run.buffer()
        cable.limit(NARROW)
        robot = OwnLoop(here.run, here.run.endpoint, cable.words, WIDE_ROWS)
        most_s = int(3 * steps * wide * 8 / NARROW + LATE_S)  # a row that goes alone has both its observations
        options = {"wide": wide, "period_ms": 1000, "outbox_bytes": 2 * steps * wide, "close_s": most_s, "insecure": 1}
        robot.start(steps, None, **options)
        robot.wait(here.wait, steps)
        made = time.monotonic()
        backlog = steps - here.status().get("env_steps", 0)
        here.wait(lambda: here.run.processes[ROBOT].poll() == 0, "end of the robot", most_s)
        late = time.monotonic() - made
        here.run.stop()
        longest = robot.counts()["longest_ms"]
        found = robot.account(steps, steps)
    return Outcome({**found, "step_ms": longest, "backlog_rows": backlog, "late_s": late})


def cut_off(trial: Trial, host: str, how: Mapping[str, Any], fault: Fault) -> Outcome:
    """A job of which one robot is reached through a cable."""
    place = Path(trial.place)
    with job(place, paced(place, learner=False), host) as here:
        return measured(trial, here, how, fault)


def measured(trial: Trial, here: PacedJob, how: Mapping[str, Any], fault: Fault) -> Outcome:
    """What a fault that one robot has meant for it and for the others."""
    here.run.buffer()
    here.run.actor(CUT_OFF, **how)
    for name in OTHERS:
        here.run.actor(name)
    for name in ROBOTS:
        here.wait(lambda name=name: here.actor(name).get("settled", 0) > 50, f"rows of {name}")
    before = here.watch(QUICK_BEFORE_S if trial.quick else BEFORE_S)
    begun = time.monotonic()
    fault()
    during = Window(begun, time.monotonic())
    made = len(here.steps(CUT_OFF)) - 2  # the newest window is held back, and one step may not be done yet
    drained_s = here.wait(lambda: arrived(here) >= made, "end of what was spooled", LATE_S)
    figures = {
        "drained_s": drained_s,
        "own_rate": here.slowest([CUT_OFF], before, during),
        "others_slowest": here.slowest(OTHERS, before, during),
        "others_fastest": here.fastest(OTHERS, before, during),
        "backlog_rows": during.seconds * RATE,
    }
    return Outcome({**figures, **here.finish(ROBOTS)})


def arrived(here: PacedJob) -> int:
    """Rows of the robot that are committed."""
    return sum(here.actor(CUT_OFF).get("acked", {}).values())


def control(place: Path) -> Mapping[str, bool]:
    """Whether rows that are lost, doubled, swapped or invented are found in a dump of which nothing is wrong otherwise."""
    good = [{"actor": "a", "stream": 1, "seq": n + 1, "episode": n // 5, "t": n % 5} for n in range(20)]
    wrong = {
        "nothing": (good, None),
        "lost": ([*good[:7], *good[8:]], "lost"),
        "doubled": ([*good[:8], good[7], *good[8:]], "duplicated"),
        "swapped": ([*good[:7], good[8], good[7], *good[9:]], "reordered"),
        "invented": ([*good, {**good[-1], "seq": 21, "episode": 4, "t": 0}], "phantom"),
    }
    said = {kind: account(rows, {"a": 20}, 0) for kind, (rows, _) in wrong.items()}
    return {kind: bool(said[kind][fault] if fault else not any(said[kind].values())) for kind, (_, fault) in wrong.items()}


WHOLE = never("lost", "duplicated", "reordered", "corrupted", "phantom")
STEADY = (
    *at_least("own_rate", 1 - TOLERANCE),
    *at_least("others_slowest", 1 - TOLERANCE),
    *at_most("others_fastest", 1 + TOLERANCE),
)
DRAINED = at_most("drained_s", 10.0)
QUICK_STEPS = at_most("step_ms", 100.0)
BARS = (*WHOLE, *STEADY, *DRAINED, *told("backlog_rows"))

PROMISE = Promise(
    "P6",
    "A robot that is cut off goes on at its rate; what it did meanwhile arrives once and in order, and nobody else notices.",
    (
        *(Part(f"down-{seconds}", 3, partial(down, seconds=seconds), BARS, control=control) for seconds in (1, 30, 300)),
        Part("half-open", 3, half_open, BARS, control=control),
        Part("flapping", 1, flapping, BARS, control=control),
        Part(
            "narrow", 1, narrow, (*WHOLE, *at_most("step_ms", 100.0), *told("rows", "backlog_rows", "late_s")), control=control
        ),
        Part("beyond", 3, beyond, (*WHOLE, *told("rows"), *at_least("dropped", 1)), control=control),
    ),
)
