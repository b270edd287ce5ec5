"""What is done to a robot's job while it learns: each other role killed, stopped and cut off, then a long cut of the cable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from campaign.robot_job import RobotJob
from headrace.launch.chaos.robot_log import WANTED, RobotLog

Tell = Callable[[str], None]
POLICY = ("policy",)
LINK_AGE_S, WEIGHT_AGE_S, HEARTBEAT_S = 2.0, 5.0, 0.5
CAREFUL = {
    **{"link_age_s": LINK_AGE_S, "link_reaction": "hold", "weight_age_s": WEIGHT_AGE_S, "weight_reaction": "hold"},
    "hold_s": 0.5,
}
ALONE = {"link_reaction": "continue", "weight_reaction": "continue"}  # for the long cut: it acts by the weights that it has
PUBLISH_EVERY = 2  # updates: weights stay young
KINDS = tuple(
    (role, how)
    for role in ("actor", "buffer", "learner")
    for how in ("kill", "stop", "partition")
    if (role, how) != ("actor", "partition")  # its cable is the buffer's
)
READY_S, LASTS_S, QUIET_S, DRAIN_S = 600.0, 30.0, 1.0, 1200.0
RECENT, FOLLOWED = 40, 20
SABOTAGED_S = 15.0  # for which a control's buffer is stopped, whatever the arm does: on a busy machine it may stop by itself
PERIODS = 2  # in which the arm is to be safe


def allowed_s(rate_hz: float, ratio: float) -> dict[str, float]:
    """What is declared as tolerable, by the role that was hurt.

    Weights may be on their way when a learner is hurt; newer ones are due some steps behind them, and those steps are in the
    pool, and told, a heartbeat later each.
    """
    due_s = PUBLISH_EVERY / ratio / rate_hz
    return {"actor": 0.0, "buffer": LINK_AGE_S, "learner": WEIGHT_AGE_S + due_s + 3 * HEARTBEAT_S}


@dataclass(frozen=True)
class Wound:
    """One fault: whom it hit and how, when, and until when nothing was mended (monotonic s)."""

    role: str
    how: str
    at: float
    until: float


class Course:
    """Does it all, in this order.

    Args:
        job: that learns; its arm has the guard :data:`CAREFUL`.
        rate_hz: of the arm.
        allowed: role -> seconds in which the arm may still follow the policy when it was hurt.
        rng: decides when in a period a fault comes.
        tell: gets a line for each.

    Attributes:
        wounds: what was done.
        cut_s: how long the long cut was.
        spooled: most steps that waited for the buffer when the cable was whole again.
        drained: whether all of them had arrived before the run's end.
    """

    def __init__(
        self, job: RobotJob, rate_hz: float, allowed: Mapping[str, float], rng: np.random.Generator, tell: Tell
    ) -> None:
        self._job, self._rate_hz, self._allowed, self._rng, self._tell = job, rate_hz, allowed, rng, tell
        self.wounds: list[Wound] = []
        self.cut_s, self.spooled, self.drained = 0.0, 0, False

    def run(self, rounds: int, pause_s: float, cut_s: float) -> bool:
        """Hurt each role in each way ``rounds`` times, then cut the cable for ``cut_s``; whether there was time for all."""
        for role, how in KINDS * rounds:
            if not self._steady():
                return False
            self._hurt(role, how)
            self._job.wait(self._over, pause_s)
        self._job.guard(ALONE)
        self._job.restart("actor")
        return self._steady() and self._cut(cut_s)

    def sabotaged(self, cut_s: float) -> bool:
        """For the control: the buffer stops under an arm that was told to care for nothing, and what waits in a cut is lost."""
        if not self._steady():
            return False
        self._hurt("buffer", "stop", SABOTAGED_S)
        return self._steady() and self._cut(cut_s, spilt=True)

    def _hurt(self, role: str, how: str, lasts_s: float | None = None) -> None:
        """Until the arm is quiet, or for ``lasts_s``."""
        time.sleep(float(self._rng.uniform(0, 1 / self._rate_hz)))
        at = self._job.hurt(role, how)
        time.sleep(self._allowed[role])
        until = self._quiet() if lasts_s is None else self._wait(lasts_s - self._allowed[role])
        self._job.mend(role, how)
        self.wounds.append(Wound(role, how, at, until))
        self._tell(f"{role} {how}: mended after {until - at:.1f} s")

    def _cut(self, seconds: float, *, spilt: bool = False) -> bool:
        job, at = self._job, time.monotonic()
        job.hosts.cable(whole=False)
        self._tell(f"the cable is cut for {seconds:.0f} s")
        job.wait(lambda: False, seconds)
        if spilt:
            job.spill()
        job.hosts.cable(whole=True)
        self.cut_s = time.monotonic() - at
        job.wait(self._heard, READY_S)
        self._tell(f"the cable is whole again, {self.spooled} steps wait")
        self.drained = job.wait(self._emptied, DRAIN_S, 0.5)
        return self.drained

    def _heard(self) -> bool:
        self.spooled = max(self.spooled, int(self._job.arm(self._job.status()).get("spooled_steps", 0)))
        return self.spooled > 0

    def _emptied(self) -> bool:
        waiting = int(self._job.arm(self._job.status()).get("spooled_steps", 1 << 30))
        self.spooled = max(self.spooled, waiting if waiting < 1 << 30 else 0)
        return waiting < self._rate_hz

    def _steady(self) -> bool:
        """Wait until the arm follows a learner's policy; whether the run still goes on."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end and not self._over():
            last = self._job.log.lines[-RECENT:]
            if sum(line.get("kind") in WANTED for line in last) >= FOLLOWED and self._taught() and self._acts():
                return True
            self._job.look()
            time.sleep(0.2)
        return False

    def _taught(self) -> bool:
        status = self._job.status()
        return bool(status.get("learner") and self._job.arm(status).get("version", [0, 0])[1] > 0)

    def _acts(self) -> bool:
        """Whether the arm follows the policy just now."""
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            if self._job.log.lines[-1].get("kind") in POLICY:
                return True
            time.sleep(0.005)
        return False

    def _quiet(self) -> float:
        """Wait until the arm has followed no policy for a while, or for too long; when."""
        end = time.monotonic() + LASTS_S
        while (now := time.monotonic()) < end:
            last = max((float(line["at"]) for line in self._job.log.lines if line.get("kind") in POLICY), default=0.0)
            if now - last > QUIET_S:
                break
            time.sleep(0.05)
        return now

    def _wait(self, seconds: float) -> float:
        time.sleep(seconds)
        return time.monotonic()

    def _over(self) -> bool:
        return "actor" in self._job.left


def safe_ms(log: RobotLog, wounds: Sequence[Wound], rate_hz: float, allowed: Mapping[str, float]) -> dict[str, Any]:
    """How long the arm went on following the policy after each fault, beyond what is declared, in ms; none: to the end."""
    found: dict[str, list[float | None]] = {f"{role}-{how}": [] for role, how in KINDS}
    for wound in wounds:
        # By how old weights are is counted while the arm acts.
        idle_s = log.idle_s(wound.at, wound.until, rate_hz) if wound.role == "learner" else 0.0
        seconds = log.safe_s(wound.at, wound.until, allowed[wound.role] + idle_s, POLICY)
        found[f"{wound.role}-{wound.how}"].append(None if seconds is None else round(1e3 * seconds, 1))
    return found
