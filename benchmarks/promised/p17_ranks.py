"""P17: the ranks of a learner never differ, and one that is lost never holds up the others.

digests   two ranks learn from one stream of rows; after each update each says the SHA-256 of all its parameters, moments,
          targets and scalars, and all are compared. Now and then one of them has no rows, or
          rows that are no numbers.
killed    `headrace train` with two ranks; one, chosen at random, is killed.
stopped   the same, with SIGSTOP: silent rather than gone.
starved   the further rank gets no rows now and then, as behind a link that stalls; the run comes to its end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from campaign.process import headrace
from campaign.promise import SUM, Outcome, Part, Promise, Trial, at_least, at_most, never, told
from campaign.timeline import Timeline
from helpers import group
from helpers.roles import TESTS, scripted

from headrace.launch.leash import leash
from headrace.learner.config import LearnerConfig

UPDATES, QUICK_UPDATES = 2000, 300
RANKS, FAULT_S, LONG_S = 2, 60.0, 180.0
SILENT_S = 15.0
AHEAD = 2 * LearnerConfig().prefetch_batches  # updates that may have been granted and not made
CONFIG: dict[str, Any] = {
    "actor": {"count": 1},
    "eval": {"every": 0, "final_episodes": 0},
    "learner": {"batch_size": 32, "rank_timeout_s": SILENT_S, "checkpoint_every_updates": 50, "ranks": RANKS},
    "model": {"options": {"hidden": [16]}},
    "network": {"heartbeat_s": 0.1, "lease_s": 2.0},
    "sinks": {"period_s": 0.2, "tensorboard": False},
    "pacing": {"min_fill": 64, "env_steps": 1_000_000},
}


def digests(trial: Trial) -> Outcome:
    """One group."""
    updates = QUICK_UPDATES if trial.quick else UPDATES
    odd = {kind: _picks(trial, updates) for kind in ("hungry", "poisoned")}
    said = group.finish(group.start(RANKS, case={"updates": updates, **odd}))
    return compared([[line["digest"] for line in rank["case"] if "digest" in line] for rank in said], updates)


def compared(said: Sequence[Sequence[str]], updates: int) -> Outcome:
    """Digests of each rank, one an update."""
    assert all(len(own) == updates for own in said), f"{[len(own) for own in said]} updates of {updates}"
    different = sum(len(set(own)) > 1 for own in zip(*said, strict=True))
    return Outcome({"compared": updates, "mismatches": different, "distinct": len(set(said[0]))})


def control(place: Path) -> Mapping[str, bool]:
    """Whether ranks that differ once, and ranks that learn nothing, are found."""
    good = [str(n) for n in range(UPDATES)]
    part = Part("digests", 1, lambda trial: Outcome({}), DIGESTS)

    def found(*said: Sequence[str]) -> bool:
        return bool(part.problems(compared(said, UPDATES)))

    return {
        "nothing": not found(good, good),
        "one update": found(good, [*good[:7], "x", *good[8:]]),
        "no learning": found(["0"] * UPDATES, ["0"] * UPDATES),
    }


def _picks(trial: Trial, updates: int) -> list[list[int]]:
    """Some updates with a rank each."""
    return [[int(n), int(trial.rng.integers(RANKS))] for n in trial.rng.choice(updates, updates // 50, replace=False)]


def fault(trial: Trial, number: signal.Signals) -> Outcome:
    """One rank that is lost."""
    with Group(trial.place) as run:
        run.wait(lambda s: len(pids(s)) == RANKS and s["updates"] > 50)
        time.sleep(float(trial.rng.uniform(0, 2)))
        found = pids(run.wait(lambda s: len(pids(s)) == RANKS))
        name = sorted(found)[int(trial.rng.integers(RANKS))]
        updates = run.status["updates"]
        os.kill(found[name], number)
        begun = time.monotonic()
        run.wait(lambda s: trains_again(s, found, updates))
        taken = time.monotonic() - begun
    return Outcome({"back_s": taken, "rank": sorted(found).index(name)})


def trains_again(status: Mapping[str, Any], lost: Mapping[str, int], updates: int) -> bool:
    """Whether all ranks are other processes than those of ``lost``, and have made more than what was handed out ahead."""
    now = pids(status)
    return len(now) == RANKS and not set(lost.values()) & set(now.values()) and status["updates"] > updates + AHEAD


def same_again(place: Path) -> Mapping[str, bool]:
    """Whether a group that only looks as if it went on is told from one that does."""
    lost, new = {"learner-0": 11, "learner-0.1": 12}, {"learner-0": 21, "learner-0.1": 22}

    def again(now: Mapping[str, int], updates: int) -> bool:
        first, *further = ({"id": name, "pid": pid} for name, pid in now.items())
        return trains_again({"learner": first, "ranks": further, "updates": updates}, lost, 100)

    return {
        "nothing": again(new, 101 + AHEAD),
        "one old rank": not again({**new, "learner-0.1": 12}, 1000),
        "one rank": not again({"learner-0": 21}, 1000),
        "no update": not again(new, 100),
        "only what was ahead": not again(new, 100 + AHEAD),
    }


def starved(trial: Trial) -> Outcome:
    """One run with a rank that goes hungry, to its end."""
    with Group(trial.place, "--pacing.env_steps", "1500", "--model.type", "helpers.starved:Starved") as run:
        code, hungry = run.finish()
    return ended(code, hungry, run.log.read_text()[-400:])


def ended(code: int, hungry: int, log: str) -> Outcome:
    """Of a run that ended with ``code``, one rank of which had no rows so often."""
    return Outcome({"hangs": int(code != 0), "hungry": hungry}, () if code == 0 else (f"train ended with {code}: {log}",))


def fed(place: Path) -> Mapping[str, bool]:
    """Whether a run that breaks, and one in which no rank ever went hungry, are found."""
    part = Part("starved", 1, starved, STARVED)
    return {
        "nothing": not part.problems(ended(0, 3, "")),
        "an error": bool(part.problems(ended(1, 3, "lost"))),
        "nobody starved": bool(part.problems(ended(0, 0, ""))),
    }


def pids(status: dict[str, Any]) -> dict[str, int]:
    """Rank -> pid."""
    return {who["id"]: who["pid"] for who in (status.get("learner"), *status.get("ranks", ())) if who}


class Group:
    """`headrace train` with two ranks, which is ended at the end of the block.

    Attributes:
        status: the newest one.
    """

    def __init__(self, place: Path, *words: str) -> None:
        self.log = place / "train.log"
        config = place / "config.yaml"
        config.write_text(yaml.safe_dump(scripted(**CONFIG)))
        found = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                headrace("train", str(config), "--run.dir", str(place), "--run.name", "run", *words),
                stdout=log,
                stderr=log,
                cwd=place,
                env={**os.environ, "PYTHONPATH": found, "OMP_NUM_THREADS": "1"},
                preexec_fn=leash(),
            )
        self._timeline = Timeline(place / "run")

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self._timeline.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                try:
                    self._process.wait(30)
                except subprocess.TimeoutExpired:
                    continue

    @property
    def status(self) -> dict[str, Any]:
        """The newest one."""
        return dict(self._timeline.status)

    def wait(self, what: Any) -> dict[str, Any]:
        """Wait until a status is as asked."""
        end = time.monotonic() + LONG_S
        while not (self.status and what(self.status)):
            assert self._process.poll() is None, self.log.read_text()[-500:]
            assert time.monotonic() < end, f"not within {LONG_S:g} s: {self.log.read_text()[-500:]}"
            self._timeline.watch(self._process.pid)
            time.sleep(0.02)
        return self.status

    def finish(self) -> tuple[int, int]:
        """The exit code, once the run has ended, and for how many updates a rank had said until then that it had no rows."""
        end, hungry = time.monotonic() + LONG_S, 0
        while self._process.poll() is None and time.monotonic() < end:
            self._timeline.watch(self._process.pid)
            hungry = max(hungry, *(who.get("updates_without_rows", 0) for who in self.status.get("ranks", ())), 0)
            time.sleep(0.02)
        return self._process.wait(0.1), hungry


BARS = (*at_most("back_s", FAULT_S), *told("rank"))
STARVED = (*never("hangs"), *at_least("hungry", 1))
DIGESTS = (*never("mismatches"), *at_least("compared", 100, SUM), *at_least("distinct", 2))

PROMISE = Promise(
    "P17",
    "The ranks of a learner never differ, and a rank that is lost never holds up the others: they train again within 60 s.",
    (
        Part("digests", 5, digests, DIGESTS, control=control),
        Part("killed", 20, partial(fault, number=signal.SIGKILL), BARS, control=same_again),
        Part("stopped", 20, partial(fault, number=signal.SIGSTOP), BARS, control=same_again),
        Part("starved", 10, starved, STARVED, control=fed),
    ),
)
