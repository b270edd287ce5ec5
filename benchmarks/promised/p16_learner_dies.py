"""P16: a learner that dies never stops collection, and one that was replaced publishes nothing more.

deaths    two actors and a learner, none of which waits for another (pacing only reports). The learner is killed again and again
          at random times, and started again a while later, from a checkpoint that is older than what it has published.
          Collection is watched meanwhile, and the versions of the weights.
zombies   the learner is stopped by SIGSTOP until another one has taken its place and published, and then goes on.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from typing import Any

from campaign.promise import SUM, Outcome, Part, Promise, Trial, at_least, at_most, never, told
from helpers.roles import Roles, roles, scripted

from headrace.buffer import SACReplayPool
from headrace.launch.chaos import history
from headrace.launch.chaos.scripted import STEPS as KIND

KILLS = 5
TRAIN_S, EXIT_S, LATE_S = 60.0, 5.0, 30.0
SHARE = 0.95  # of the rate of collection with a learner, which takes a core of its own
ALONE_S = 3.0
ACTORS = ("actor-0", "actor-1")
STEPS = "steps"  # directory of what the envs have executed, in the working directory of the roles
CONFIG: dict[str, Any] = {
    "env": {"kwargs": {"lengths": [50], "ends": ["truncated"], "delay_s": 0.004, "history": STEPS}},
    "model": {"options": {"hidden": [16]}},
    "learner": {"batch_size": 32, "checkpoint_every_updates": 500, "publish_period_s": 0.02},
    "pacing": {"env_steps": 0, "min_fill": 64, "random_steps": 64, "hold_learner": False, "hold_actors": False},
    "pool": {"capacity": 100_000},
}


def deaths(trial: Trial) -> Outcome:
    """Some kills of one run."""
    with roles(trial.place, scripted(**CONFIG)) as run:
        begin(run)
        watch = Watch(run)
        waits: list[float] = []
        rates: list[float] = []
        for _ in range(2 if trial.quick else KILLS):
            watch.look_for(ALONE_S)
            with_learner = watch.rate(ALONE_S)
            watch.look_for(float(trial.rng.uniform(0, 1)))
            run.kill("learner")
            watch.look_for(ALONE_S)
            rates.append(watch.rate(ALONE_S) / with_learner)
            pid = learner(run).pid
            begun = time.monotonic()
            updates = watch.looks[-1]["updates"]
            watch.until(lambda s, pid=pid, updates=updates: at_work(s, pid, updates), TRAIN_S)
            waits.append(time.monotonic() - begun)
        epochs = {look["weights"]["epoch"] for look in watch.looks}
        lost = ended(run)
    figures = {"kills": len(waits), "steps_lost": lost, "versions_back": watch.backward(), "epochs": len(epochs)}
    return Outcome({**figures, "rate_without": min(rates), "restart_s": max(waits)})


def zombies(trial: Trial) -> Outcome:
    """One learner that was taken for dead."""
    with roles(trial.place, scripted(**CONFIG)) as run:
        begin(run)
        watch, old = Watch(run), run.processes["learner"]
        watch.look_for(float(trial.rng.uniform(0, 2)))
        os.kill(old.pid, signal.SIGSTOP)
        run.processes["zombie"] = old
        pid = learner(run, "successor").pid
        updates = watch.looks[-1]["updates"]
        watch.until(lambda s: at_work(s, pid, updates), TRAIN_S)
        steps = {step.name for step in (run.run / "checkpoints").glob("step_*")}
        begun = time.monotonic()
        os.kill(old.pid, signal.SIGCONT)
        code = old.wait(LATE_S)
        exit_s = time.monotonic() - begun
        watch.look_for(1.0)
        problems = () if code != 0 else ("it ended with 0, as if nothing had been",)
        successor = watch.looks[-1]["learner"]
        problems += () if successor and successor["pid"] == pid else ("the successor is not the learner any more",)
        said = any(words in run.log("learner") for words in ("writes here", "held by", "taken over"))
        problems += () if said else (f"its log does not say who took its place: {run.log('learner')[-300:]}",)
        lost = ended(run)
    figures = {"versions_back": watch.backward(), "steps_lost": lost, "exit_s": exit_s, "checkpoints_before": len(steps)}
    return Outcome(figures, problems)


def begin(run: Roles) -> None:
    """Start all, and wait for the first updates."""
    run.buffer()
    for name in ACTORS:
        run.actor(name)
    learner(run)
    run.wait(lambda s: s["updates"] > 50 and len(s["actors"]) == len(ACTORS), TRAIN_S, watch=("buffer", *ACTORS, "learner"))


def learner(run: Roles, name: str = "learner") -> Any:
    """Start the learner."""
    return run.start(name, "learner", str(run.config), "--connect", run.endpoint)


def at_work(status: dict[str, Any], pid: int, updates: int) -> bool:
    """Whether the learner with this pid has been granted updates and published."""
    who = status["learner"]
    return bool(who) and who["pid"] == pid and status["updates"] > updates and status["weights"]["epoch"] == who["epoch"]


def ended(run: Roles) -> int:
    """Ask the actors to end; how many of the steps that they executed did not become rows."""
    for name in ACTORS:
        run.processes[name].send_signal(signal.SIGTERM)
    for name in ACTORS:
        assert run.processes[name].wait(LATE_S) == 0, run.log(name)
        assert "abandoned" not in run.log(name), run.log(name)
    counters = run.status()["counters"]
    run.stop()
    executed = sum(len(told.lines) for told in history.read_all(run.directory / STEPS, KIND))
    with SACReplayPool(CONFIG["pool"]["capacity"], path=run.run / "pool") as pool:
        ok, why = pool.check_valid()
        assert ok, why
        return max(executed - pool.head, counters["lost_before"])


class Watch:
    """Asks for the status some times a second; every look must show that collection goes on.

    Attributes:
        looks: all statuses, oldest first.
    """

    def __init__(self, run: Roles) -> None:
        self._run = run
        self._at: list[float] = []
        self.looks: list[dict[str, Any]] = []
        self.look_for(0.0)

    def look_for(self, seconds: float) -> None:
        """Look until so many seconds have passed, at least once."""
        end = time.monotonic() + seconds
        while True:
            self._look()
            if time.monotonic() >= end:
                return

    def until(self, what: Any, seconds: float) -> None:
        """Look until a status is as asked."""
        end = time.monotonic() + seconds
        while not what(self.looks[-1]):
            assert time.monotonic() < end, f"not within {seconds:g} s: {self._run.log('learner')[-500:]}"
            self._look()

    def rate(self, seconds: float) -> float:
        """Env steps a second over the newest looks."""
        first = next(n for n, at in enumerate(self._at) if at >= self._at[-1] - seconds)
        steps = self.looks[-1]["env_steps"] - self.looks[first]["env_steps"]
        return float(steps / max(1e-9, self._at[-1] - self._at[first]))

    def backward(self) -> int:
        """How often the newest weights were older than before."""
        orders = [(look["weights"]["epoch"], look["weights"]["step"]) for look in self.looks]
        return sum(later < earlier for earlier, later in pairwise(orders))

    def _look(self) -> None:
        self.looks.append(self._run.status())
        self._at.append(time.monotonic())
        time.sleep(0.05)


PROMISE = Promise(
    "P16",
    "A learner that dies never stops collection, and one that was replaced publishes nothing more.",
    (
        Part(
            "deaths",
            10,
            deaths,
            (
                *at_least("kills", 50, SUM),
                *never("steps_lost", "versions_back"),
                *at_least("rate_without", SHARE),
                *told("restart_s", "epochs"),
            ),
        ),
        Part("zombies", 10, zombies, (*never("steps_lost", "versions_back"), *at_most("exit_s", EXIT_S))),
    ),
)
