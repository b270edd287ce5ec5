"""One run of a robot that learns on two hosts: demonstrations, learning, the exam of its policy and of one that was cloned."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from campaign import process
from campaign.process import ProcessFailed, headrace
from campaign.records import ROOT
from campaign.robot_course import ALONE, CAREFUL, PUBLISH_EVERY, Course, allowed_s, safe_ms
from campaign.robot_exam import examine
from campaign.robot_figures import conserved, curve_of, episodes_of, mishaps, problems, unbalanced
from campaign.robot_job import RUN, RobotJob
from campaign.two_hosts import two_hosts
from headrace.common.config import merge
from headrace.launch.chaos.robot_log import RobotLog
from headrace.launch.config import RunConfig, make_config
from headrace.launch.pools import own_pool

CONFIG = ROOT / "examples" / "robot_reach.yaml"
CLONING = ROOT / "examples" / "presets" / "bc.yaml"
TELL_S, LONGEST_S = 15.0, 3 * 3600.0
SPARE_ROWS = 500
UNDISTURBED, HURTFUL, SABOTAGED = "undisturbed", "hurtful", "sabotaged"  # kinds of runs
OFTEN = {"publish_every_updates": PUBLISH_EVERY, "checkpoint_every_updates": 250}  # a kill costs little of what was learned
FOUND = (("never safe", "safe within"), ("missing",))  # how what a control has to find begins


@dataclass(frozen=True)
class Size:
    """How much of everything: ``ratio`` are updates for each step of the arm, ``rounds`` of faults, ``cut_s`` the long cut."""

    env_steps: int
    ratio: float
    demos: int
    cloning_updates: int
    exam: int
    rounds: int = 0
    pause_s: float = 0.0
    cut_s: float = 0.0


WHOLE = Size(24_000, 0.5, 20, 4_000, 100)
HURT = Size(32_000, 0.5, 20, 4_000, 100, 2, 5.0, 600.0)
QUICK, QUICK_HURT = Size(400, 0.1, 12, 50, 3), Size(4_000, 0.1, 12, 50, 3, 1, 0.0, 15.0)

CONTROL = Size(2_000, 0.1, 12, 0, 0, cut_s=15.0)


def measure(place: Path, seed: int, size: Size, *, hurt: bool) -> dict[str, Any]:
    """One whole run: demonstrations, learning, both exams."""
    plain = _plain(place, seed, size, CAREFUL if hurt else {}, OFTEN if hurt else {})
    config = make_config(plain)
    _demonstrate(place, plain, size)
    begun, kind = time.monotonic(), HURTFUL if hurt else UNDISTURBED
    found = _learn(place, plain, config, size, np.random.default_rng(seed), kind)
    learned_min = (time.monotonic() - begun) / 60
    tell("exam of the policy")
    found["policy"] = examine(config, place / RUN, size.exam)
    found["wall_min"] = round((time.monotonic() - begun) / 60, 2)
    tell(f"success {found['policy']['success']:.0%}; cloning the demonstrations alone")
    found["cloning"] = examine(config, _clone(place, plain, size), size.exam)
    found |= {"env": config.env.id, "learned_min": round(learned_min, 2), "ratio": config.pacing.ratio}
    missed = problems({**found, "hurt": hurt}, config.robot.rate_hz)
    for problem in missed:
        tell(f"missed: {problem}")
    return {**found, "problems": missed, "passed": not missed}


def control(place: Path, seed: int) -> dict[str, Any]:
    """A short run that is sabotaged: an arm that cares for no age, and a spool that is lost. ``passed``: both are found."""
    plain = _plain(place, seed, CONTROL, ALONE, OFTEN)
    config = make_config(plain)
    _demonstrate(place, plain, CONTROL)
    found = _learn(place, plain, config, CONTROL, np.random.default_rng(seed), SABOTAGED)
    said = mishaps({**found, "hurt": True}, config.robot.rate_hz)
    for problem in said:
        tell(f"found: {problem}")
    passed = all(any(problem.startswith(words) for problem in said) for words in FOUND)
    return {"env": config.env.id, "safe_ms": found["safe_ms"], "missing": found["missing"], "found": said, "passed": passed}


def _plain(place: Path, seed: int, size: Size, guard: Mapping[str, Any], learner: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the run, plain values."""
    pool = {"demos": [str(place / "shards")], "capacity": size.env_steps + SPARE_ROWS}  # all rows stay, to be counted
    pacing = {"env_steps": size.env_steps, "ratio": size.ratio}
    own = {"seed": seed, "pool": pool, "pacing": pacing, "robot": {"guard": dict(guard)}, "learner": dict(learner)}
    return merge(yaml.safe_load(CONFIG.read_text(encoding="utf-8")), own)


def _demonstrate(place: Path, plain: Mapping[str, Any], size: Size) -> None:
    """Demonstrations by the script, who drives from the first step on, as what ``pool.demos`` takes."""
    alone = merge(plain, {"pool": {"demos": []}, "robot": {"teleop": {"kwargs": {"chance": 1.0, "periods": None}}}})
    path, pool = place / "demos.yaml", place / "demos"
    path.write_text(yaml.safe_dump(alone), encoding="utf-8")
    tell(f"{size.demos} demonstrations")
    words = ("record", str(path), str(pool), "--episodes", str(size.demos))
    process.run(headrace(*words), place / "demos.log", deadline_s=600)
    process.run(headrace("pool", "export", str(pool), str(place / "shards")), place / "export.log", deadline_s=120)


def _learn(
    place: Path, plain: Mapping[str, Any], config: RunConfig, size: Size, rng: np.random.Generator, kind: str
) -> dict[str, Any]:
    """The run itself, to its last update, and what became of every step."""
    rate_hz = config.robot.rate_hz
    allowed = allowed_s(rate_hz, size.ratio)
    with two_hosts() as hosts, contextlib.closing(RobotJob(hosts, place, plain)) as job:
        for role in ("buffer", "learner", "actor"):
            job.start(role)
        course, done = Course(job, rate_hz, allowed, rng, tell), True
        watch = _Watch(job)
        if kind == HURTFUL:
            done = course.run(size.rounds, size.pause_s, size.cut_s)
        elif kind == SABOTAGED:
            done = course.sabotaged(size.cut_s)
        if not job.wait(lambda: watch() and {"actor", "learner"} <= set(job.left), LONGEST_S, 0.5):
            raise ProcessFailed(f"the run did not end within {LONGEST_S:.0f} s")
        job.end()
    log = RobotLog.read(job.record)
    with own_pool(place / RUN / "pool") as pool:
        rows = list(pool.dump())
        made = {"env_steps": pool.env_steps, "updates": pool.updates, "unbalanced": unbalanced(pool.counters())}
    episodes = episodes_of(rows)
    p50, p99 = log.period_ms
    figures = {
        **{"stale_commands": log.stale_commands, "crossed_resets": log.crossed_resets},
        **conserved(rows, watch.acked, log, job.left_at),
        **{"period_ms_p50": p50, "period_ms_p99": p99, "jitter_ms_p99": watch.station.get("jitter_ms_p99")},
        **{"overruns": watch.station.get("overruns"), "refused_late": log.refused},
        "told": {name: log.count(name) for name in ("policy", "human", "hold", "stop", "reset")},
        **{**made, "rows": len(rows)},
        "updates_s": watch.updates_s,
        "human_share": round(sum(e[1] for e in episodes) / max(1, sum(e[0] for e in episodes)), 4),
    }
    if kind != UNDISTURBED:
        figures |= {
            "course_done": done,
            "safe_ms": safe_ms(log, course.wounds, rate_hz, allowed),
            "cut_s": round(course.cut_s, 1),
        }
        figures |= {"spooled": course.spooled, "drained": course.drained}
    return {**figures, "curve": curve_of(episodes), "episodes": episodes}


class _Watch:
    """Looks at the status now and then, and tells how far the run is.

    Attributes:
        acked: stream -> last number that was acknowledged.
        station: newest report of the robot's process.
        updates_s: updates a second, the median of all looks while it learned.
    """

    def __init__(self, job: RobotJob) -> None:
        self._job, self._next, self._begun = job, 0.0, time.monotonic()
        self._rates: list[float] = []
        self.acked: dict[int, int] = {}
        self.station: Mapping[str, Any] = {}

    @property
    def updates_s(self) -> float:
        """See above."""
        return round(float(np.median(self._rates)), 2) if self._rates else 0.0

    def __call__(self) -> bool:
        """Always true."""
        now = time.monotonic()
        status = self._job.status()
        arm = self._job.arm(status)
        self.acked |= {int(stream): seq for stream, seq in arm.get("acked", {}).items()}
        self.station = arm.get("station") or self.station
        if status and now >= self._next:
            self._next = now + TELL_S
            rate = status["rates"]["updates_s"]
            self._rates += [rate] if status["phase"] == "training" else []
            seconds, steps, goal = now - self._begun, status["env_steps"], status["env_steps_goal"]
            mean = status["return_mean"]
            said = f"return {mean:.2f}, jitter p99 {self.station.get('jitter_ms_p99')} ms" if mean is not None else ""
            tell(f"{seconds / 60:5.1f} min: {steps}/{goal} env steps, {status['updates']} updates ({rate:.1f}/s), {said}")
        return True


def _clone(place: Path, plain: Mapping[str, Any], size: Size) -> Path:
    """A run that has only cloned the demonstrations, by the same networks."""
    alone = merge(plain, yaml.safe_load(CLONING.read_text(encoding="utf-8")))
    del alone["sampling"]  # whose sets the policy's own rows would have to fill
    updates = {"pacing": {"offline_updates": size.cloning_updates}, "learner": {"cloning_updates": size.cloning_updates}}
    own = {"run": {"dir": str(place), "name": "cloned"}, "actor": {"count": 0}, "eval": {"final_episodes": 0}}
    path = place / "cloning.yaml"
    path.write_text(yaml.safe_dump(merge(alone, {**updates, **own})), encoding="utf-8")
    process.run(headrace("train", str(path)), place / "cloning.log", deadline_s=3600, environment={"OMP_NUM_THREADS": "1"})
    return place / "cloned"


def tell(text: str) -> None:
    """Print a line now."""
    print(text, flush=True)
