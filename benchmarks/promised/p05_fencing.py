"""P5: a process that was replaced writes nothing more, and leaves when it wakes; its spool is its successor's."""

from __future__ import annotations

import signal
import subprocess
import time

from campaign.own_loop import CONFIG, HELD_BACK, ROBOT, OwnLoop
from campaign.paced_job import PacedJob, job, paced
from campaign.promise import Outcome, Part, Promise, Trial, at_least, at_most, never

ACTOR = "robot-0"
REFUSED = 3  # the exit code of who must not be started again
ASLEEP_S, QUICK_S = 60.0, 8.0
AFTER_S = 5.0  # that the heir is watched, so that a late row of the zombie would be seen
WAKES_S = 30.0
SPOOLED, AGAIN = 500, 70  # steps that a killed robot leaves in its spool, and that its successor makes


def zombie(trial: Trial) -> Outcome:
    """SIGSTOP a robot at a random time, start its successor, wake it again."""
    config = paced(trial.place, learner=False)
    with job(trial.place, config) as here:
        here.run.buffer()
        zombie = here.run.actor(ACTOR)
        here.wait(lambda: here.actor(ACTOR).get("settled", 0) > 50, "rows of the first process")
        time.sleep(float(trial.rng.uniform(0, 0.5)))
        stream = str(here.actor(ACTOR)["epoch"])
        zombie.send_signal(signal.SIGSTOP)
        heir = here.run.actor(ACTOR)
        fenced_s = here.wait(lambda: here.actor(ACTOR).get("pid") == heir.pid, "session of the heir")
        before = acked(here, stream)
        time.sleep(max(0.0, (QUICK_S if trial.quick else ASLEEP_S) - fenced_s))
        zombie.send_signal(signal.SIGCONT)
        exit_s, problems = leaves(zombie), []
        if zombie.returncode != REFUSED or "taken over" not in here.run.log(ACTOR):
            problems.append(f"the zombie ended with {zombie.returncode}: {here.run.log(ACTOR)[-300:]}")
        time.sleep(AFTER_S)
        figures = {"accepted_of_zombie": acked(here, stream) - before, "exit_s": exit_s, "fenced_s": fenced_s}
        if here.actor(ACTOR).get("pid") != heir.pid:
            problems.append("the heir has lost its session")
    return Outcome(figures, tuple(problems))


def spool(trial: Trial) -> Outcome:
    """SIGKILL a robot program that has spooled rows without a buffer, start it again: all of them arrive once."""
    with job(trial.place, CONFIG) as here:
        here.run.buffer()
        robot, place = OwnLoop(here.run, here.run.endpoint), trial.place / "spool"
        robot.start(100_000, place)
        here.wait(lambda: here.status().get("env_steps", 0) > 50, "rows of the first process")
        gone(here, "buffer")
        cut = robot.steps
        robot.wait(here.wait, SPOOLED + HELD_BACK + int(trial.rng.integers(100)))
        gone(here, ROBOT)
        executed = robot.steps
        here.run.buffer()
        robot.start(AGAIN, place)
        code = here.run.processes[ROBOT].wait(WAKES_S * 4)
        here.run.stop()
        found = robot.account(executed - HELD_BACK + AGAIN, executed + AGAIN)
        arrived = found.pop("rows") - cut - AGAIN
    problems = () if code == 0 else (f"the robot ended with {code}: {here.run.log(ROBOT)[-300:]}",)
    return Outcome({**found, "spooled_that_arrived": arrived}, problems)


def gone(here: PacedJob, name: str) -> None:
    """SIGKILL a process, which nobody waits for from now on."""
    here.run.kill(name)
    del here.run.processes[name]


def acked(here: PacedJob, stream: str) -> int:
    """Last committed row of one stream of the actor."""
    return int(here.actor(ACTOR)["acked"].get(stream, 0))


def leaves(process: subprocess.Popen[bytes]) -> float:
    """How long a process takes until it has ended (s)."""
    begun = time.monotonic()
    process.wait(WAKES_S)
    return time.monotonic() - begun


WHOLE = never("lost", "duplicated", "reordered", "corrupted", "phantom")

PROMISE = Promise(
    "P5",
    "A process that was replaced writes nothing more and ends with a clear message when it wakes; what it spooled arrives.",
    (
        Part("zombie", 5, zombie, (*never("accepted_of_zombie"), *at_most("exit_s", 5.0), *at_most("fenced_s", 15.0))),
        Part("spool", 10, spool, (*WHOLE, *at_least("spooled_that_arrived", SPOOLED))),
    ),
)
