"""P12: a checkpoint is complete or invisible, and the one before survives; kills and failing calls as in checkpoints.py.

learners  two processes write checkpoints into one run directory at once, as two learners that were started by mistake, and one
          is killed at a random time. The first must stay alone until it dies; each write that was said to be successful must be
          there, whole and its writer's own.
inserts   a snapshot of a million rows is written beside inserts at a fixed rate: what it adds to their stall (snapshots.py).
training  checkpoints are written beside updates of an MLP of the usual size, one in ten seconds: what they add to its stall.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from campaign import saving
from campaign.pool_tables import STALLS, newest, sum_stalls
from campaign.promise import MEDIAN, Bar, Outcome, Part, Promise, Recorded, Tally, Trial, counted, never, told
from campaign.records import Record, latest
from campaign.stalling import MISSED, MOST_STALL, NOISY
from helpers.learner import make_batch, make_sac

from headrace.common.errors import CheckpointsClaimed
from headrace.common.specs import ActionSpec, ObsSpec, TransitionSpec
from headrace.common.weights import Version
from headrace.learner.claim import Claim
from headrace.learner.config import ModelConfig
from headrace.learner.saver import Saver

KILLS = 200
STALL = 0.01  # of wall time
LEGS, LEG_S, SAVE_EVERY_S, WARM_S = 3, 20.0, 10.0, 2.0
QUICK_LEG_S = 5.0
SAVE_S = 30.0
CHEETAH = TransitionSpec((ObsSpec("obs", (17,), "<f4"),), ActionSpec((6,), (-1.0,) * 6, (1.0,) * 6))


def kills(known: Sequence[Record]) -> Tally:
    """SIGKILL while checkpoints are written, renamed and deleted."""
    own = _of_kind("kill", known)
    figures = {"half_written": sum(r["half"] for r in own)}
    return counted(own, KILLS, figures, "none lost, none wrong", missed=not figures["half_written"])


def faults(known: Sequence[Record]) -> Tally:
    """The k-th write, fsync, rename, unlink, mkdir and open failed, for each k."""
    own = _of_kind("fault", known)
    return counted(own, len(saving.fault_names()), {"calls_failed": sum(r["reached"] for r in own)}, "none lost, none wrong")


def learners(trial: Trial) -> Outcome:
    """One pair."""
    place, rng = trial.place, trial.rng
    first = Writer(place, "a", 1)
    first.wait()
    time.sleep(float(rng.uniform(0, 0.3)))
    refused = Writer(place, "b", 2).end() == REFUSED
    successor = None
    if takes_over := bool(rng.integers(2)):
        os.kill(first.pid, signal.SIGSTOP)  # one that hangs is replaced by one that the same buffer has let in later
        successor = Writer(place, "a", 2)
        successor.wait()
        os.kill(first.pid, signal.SIGCONT)
        refused &= first.end() == REFUSED
    last = successor or first
    time.sleep(float(rng.uniform(0, 0.3)))
    said = last.kill()
    verdict = saving.audit(place / "checkpoints", said)
    left = Writer(place, "b", 3)
    left.wait()
    left.kill()
    figures = {"not_refused": not refused, "wrong": len(verdict.problems), "written": said, "taken_over": takes_over}
    return Outcome(figures, tuple(text.replace(str(place), "") for text in verdict.problems))


REFUSED = 3  # exit code


class Writer:
    """A process that writes checkpoints into the run directory ``place``, as a learner of ``pool`` with ``epoch``."""

    def __init__(self, place: Path, pool: str, epoch: int) -> None:
        words = [sys.executable, "-m", "promised.p12_checkpoints", str(place), pool, str(epoch)]
        found = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0, env={**os.environ, "PYTHONPATH": found})
        self.pid = self._process.pid

    def wait(self) -> None:
        """Until the first is written."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"it wrote no checkpoint and ended with {self._process.wait(SAVE_S)}"

    def kill(self) -> int:
        """The number of the last that it said was written."""
        self._process.kill()
        out, _ = self._process.communicate(timeout=SAVE_S)
        return int(out.split()[-1]) if out.split() else 0

    def end(self) -> int:
        """Its exit code; it must end by itself."""
        try:
            self._process.communicate(timeout=SAVE_S)
        finally:
            self._process.kill()
        return self._process.wait()


def write(place: Path, pool: str, epoch: int) -> int:
    """Write checkpoints until killed, or refused: each number is larger than all that are there."""
    torch.set_num_threads(1)
    try:
        claim = Claim(place, pool, epoch)
        number = max([0, *(int(path.name[5:17]) for path in (place / "checkpoints").glob("step_*"))])
        saver = Saver(place / "checkpoints", saving.KEEP, saving.SPEC, claim)
        while True:
            number += 1
            saver.save(number, saving.state(number), saving.weights(number))
            saver.wait(SAVE_S)
            if saver.not_saved:
                return 1
            print(number, flush=True)
    except CheckpointsClaimed:
        return REFUSED


def inserts(known: Sequence[Record]) -> Tally:
    """Snapshots; where the machine was too noisy to tell, no trial was made."""
    own, said = newest(STALLS, known), sum_stalls(known)
    low, high = said["interval"]
    figures = f"stall_added {low:.4f} to {high:.4f}; noise {said['noise']:.4f}: {said['verdict']}" if own else ""
    made = 0 if said["verdict"] == NOISY else len(own)
    failures = sum(r["verdict"] == MISSED for r in own)
    missed = said["verdict"] == MISSED
    return Tally(made, STALLS.trials, failures, figures, f"stall_added <= {MOST_STALL:g}", missed, tuple(own))


def training(trial: Trial) -> Outcome:
    """Legs with and without checkpoints in turn."""
    torch.set_num_threads(1)
    sac, leg_s = make_sac(CHEETAH, model=ModelConfig()), QUICK_LEG_S if trial.quick else LEG_S
    batch = make_batch(CHEETAH, 256)
    saver = Saver(trial.place / "checkpoints", 2, CHEETAH)

    def leg(seconds: float, every_s: float) -> list[float]:
        """Durations (s) of updates, each with the checkpoint that it begins."""
        taken: list[float] = []
        begun = time.perf_counter()
        due = begun if every_s else float("inf")
        while (now := time.perf_counter()) < begun + seconds:
            sac.update(batch)
            if now >= due and not saver.busy:
                saver.save(sac.step, sac.get_state(), sac.weights(Version("learner", 1, sac.step)))
                due += every_s
            taken.append(time.perf_counter() - now)
        saver.wait(SAVE_S)
        return taken

    leg(WARM_S, 0.0)
    legs = [(leg(leg_s, 0.0), leg(leg_s, SAVE_EVERY_S)) for _ in range(LEGS)]
    return stalled(legs)


def stalled(legs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Outcome:
    """What checkpoints add to the stall of updates, by the durations (s) of legs without and with them."""
    usual = float(np.median([seconds for alone, _ in legs for seconds in alone]))
    added = [_stall(beside, usual) - _stall(alone, usual) for alone, beside in legs]
    return Outcome({"stall_added": float(np.median(added)), "update_ms": 1e3 * usual})


def control(place: Path) -> Mapping[str, bool]:
    """Whether a checkpoint that holds updates up is found, and noise that is there without it is not."""
    rng = np.random.default_rng(0)
    noisy = [list(1e-3 + rng.exponential(1e-4, 10_000)) for _ in range(2 * LEGS)]

    def found(held_s: float) -> bool:
        legs = [(alone, [*beside, held_s]) for alone, beside in zip(noisy[::2], noisy[1::2], strict=True)]
        figure = stalled(legs).figures["stall_added"]
        return not figure <= STALL

    return {"noise": not found(1e-3), "0.3 s in ten": found(0.3)}


def _stall(taken: Sequence[float], usual: float) -> float:
    """The share of time by which durations are longer than the usual one."""
    return float(np.maximum(np.asarray(taken) - usual, 0).sum() / np.sum(taken))


def _of_kind(kind: str, known: Sequence[Record]) -> list[Record]:
    return [r for (k, _), r in sorted(latest(list(known), "kind", "trial").items()) if k == kind]


PROMISE = Promise(
    "P12",
    "A checkpoint is complete or invisible, and the previous one survives whatever kills the learner or fails on disk.",
    (
        Recorded("kills", "checkpoints.py", "checkpoints.jsonl", kills),
        Recorded("faults", "checkpoints.py --faults", "checkpoints.jsonl", faults),
        Part("learners", 20, learners, (*never("not_refused", "wrong"), *told("written", "taken_over")), quick=2),
        Recorded("inserts", "snapshots.py", STALLS.file, inserts),
        Part("training", 3, training, (Bar("stall_added", MEDIAN, high=STALL), *told("update_ms")), control=control),
    ),
)

if __name__ == "__main__":
    sys.exit(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
