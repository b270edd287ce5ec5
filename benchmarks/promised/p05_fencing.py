"""P5: a process that was replaced writes nothing more, and leaves when it wakes."""

from __future__ import annotations

import signal
import subprocess
import time

from campaign.paced_job import PacedJob, job, paced
from campaign.promise import Outcome, Part, Promise, Trial, at_most, never

ACTOR = "robot-0"
REFUSED = 3  # the exit code of who must not be started again
ASLEEP_S, QUICK_S = 60.0, 8.0
AFTER_S = 5.0  # that the heir is watched, so that a late row of the zombie would be seen
WAKES_S = 30.0


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


def acked(here: PacedJob, stream: str) -> int:
    """Last committed row of one stream of the actor."""
    return int(here.actor(ACTOR)["acked"].get(stream, 0))


def leaves(process: subprocess.Popen[bytes]) -> float:
    """How long a process takes until it has ended (s)."""
    begun = time.monotonic()
    process.wait(WAKES_S)
    return time.monotonic() - begun


PROMISE = Promise(
    "P5",
    "A process that was replaced writes nothing more, and ends with a clear message when it wakes.",
    (Part("zombie", 5, zombie, (*never("accepted_of_zombie"), *at_most("exit_s", 5.0), *at_most("fenced_s", 15.0))),),
)
