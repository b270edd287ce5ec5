"""P15: a live run that was killed in the middle and resumed is as good as one that was not, with no burst and no forgetting.

Each trial is one seed: a run without a stop, and the same run of which every process is killed at half of its env steps, then
resumed. Compared are the returns of their final evaluations, over the same episodes. After the resume, updates per env step are
counted from the buffer's first answer to a minute behind the first step, and the critic's loss of the first 500 updates is held
against that of the last 500 before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml
from campaign import runs
from campaign.process import ProcessFailed, headrace, run
from campaign.promise import MEAN, Outcome, Part, Promise, Trial, at_least, between, told
from campaign.records import ROOT
from campaign.timeline import Timeline

SEEDS = 10
RUN_S = 3600.0
FIRST_S, LOOK_UPDATES = 60.0, 500
TOLERANCE, LEAST = 0.05, 0.9
EXAMPLES = {"pendulum": "pendulum.yaml", "reacher": "reacher_v5.yaml"}
SHORT = {"pacing.env_steps": 1500, "pacing.min_fill": 256, "pacing.random_steps": 100, "eval.final_episodes": 2}


def pair(trial: Trial, example: str) -> Outcome:
    """One seed."""
    config = yaml.safe_load((ROOT / "examples" / example).read_text())
    for key, value in (SHORT if trial.quick else {"eval.final_episodes": 20}).items():
        section, name = key.split(".")
        config.setdefault(section, {})[name] = value
    config |= {"seed": trial.number}
    config["learner"]["checkpoint_every_updates"] = config["pacing"]["env_steps"] // 8
    whole, halved = (trial.place / name for name in ("whole", "halved"))
    for path in (whole, halved):
        path.with_suffix(".yaml").write_text(yaml.safe_dump({**config, "run": {"dir": str(trial.place), "name": path.name}}))
    environment = {"OMP_NUM_THREADS": "1"}
    run(headrace("train", f"{whole}.yaml"), whole.with_suffix(".log"), deadline_s=RUN_S, environment=environment)
    before = killed_at(halved, config["pacing"]["env_steps"] // 2, environment)
    (halved / "endpoint").unlink()  # of the buffer that was killed: it would be asked in place of the next one
    timeline = Timeline(halved)
    try:
        words = headrace("train", "--resume", str(halved))
        run(words, halved.with_suffix(".log2"), deadline_s=RUN_S, environment=environment, watch=timeline.watch)
    finally:
        timeline.close()
    returns = {path.name: runs.read_result(path)["eval_return_mean"] for path in (whole, halved)}
    ratio = config["pacing"]["ratio"]
    return Outcome(
        {
            "return_whole": returns["whole"],
            "return_resumed": returns["halved"],
            "return_ratio": reached(returns["halved"], returns["whole"]),
            "updates_share": first_minute(timeline.points) / ratio,
            "loss_ratio": loss_ratio(runs.read_metrics(halved), before),
            "killed_at_env_steps": before["env_steps"],
        }
    )


def killed_at(path: Any, env_steps: int, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Begin a run and kill all of its processes once it has executed so many env steps; its last status."""
    timeline = Timeline(path)

    def watch(pid: int) -> None:
        timeline.watch(pid)
        if timeline.status.get("env_steps", 0) >= env_steps:
            family = [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
            for process in family:  # the roles first: else they would hear of their supervisor's death, and end in order
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    words = headrace("train", f"{path}.yaml")
    try:
        run(words, path.with_suffix(".log"), deadline_s=RUN_S, environment=environment, watch=watch)
    except ProcessFailed as error:
        if error.code != -9:
            raise
        return timeline.status
    finally:
        timeline.close()
    raise ProcessFailed("the run ended before it was killed")


def reached(resumed: float, whole: float) -> float:
    """The part of the uninterrupted return that the resumed run has; negative returns are costs, which are to be low."""
    if (resumed < 0) != (whole < 0):
        return 0.0 if resumed < whole else 2.0
    return whole / resumed if whole < 0 else resumed / whole


def first_minute(points: Sequence[tuple[float, int, int]]) -> float:
    """Updates per env step to a minute behind the first step; what was made before it counts, since that would be a burst."""
    moving = [p for p in points if p[1] > points[0][1]]
    if not moving:
        raise ProcessFailed("no env step was seen after the resume")
    last = [p for p in moving if p[0] <= moving[0][0] + FIRST_S][-1]
    return (last[2] - points[0][2]) / (last[1] - points[0][1])


def loss_ratio(metrics: Sequence[Mapping[str, Any]], before: Mapping[str, Any]) -> float:
    """Mean critic loss over the first updates after the resume, in times of that over the last ones before."""
    known = [(m["learner/updates"], m["critic/loss"], n) for n, m in enumerate(metrics) if "critic/loss" in m]
    steps = np.array([updates for updates, _, _ in known])
    back = np.flatnonzero(np.diff(steps) < 0)  # the resumed learner goes on from its last checkpoint
    cut = int(back[0]) + 1 if len(back) else int(np.searchsorted(steps, before["updates"]))
    old, new = known[:cut], known[cut:]
    if not old or not new:
        raise ProcessFailed("the metrics do not show both sides of the resume")
    late = [loss for updates, loss, _ in old if updates >= old[-1][0] - LOOK_UPDATES]
    early = [loss for updates, loss, _ in new if updates <= new[0][0] + LOOK_UPDATES]
    return float(np.mean(early) / np.mean(late))


def control(place: Path) -> Mapping[str, bool]:
    """Whether a burst before the first step and one behind it are found, and a return that fell behind is."""

    def found(burst: int, at_s: int, ratio: float = 1.0) -> bool:
        points = [(float(s), 500 + max(0, s - 5), 400 + max(0, s - 5) + burst * (s >= at_s)) for s in range(120)]
        part = Part("one", 1, lambda trial: Outcome({}), BARS)
        outcome = Outcome({"return_ratio": ratio, "updates_share": first_minute(points)})
        judged = [bar.judge([{"figures": {"return_ratio": ratio}}])[1] for bar in at_least("return_ratio", LEAST, MEAN)]
        return bool(part.problems(outcome)) or not all(judged)

    return {
        "nothing": not found(0, 0),
        "a burst before the first step": found(100, 3),
        "a burst behind it": found(100, 20),
        "none any more": not found(100, 80),
        "half of the return": found(0, 0, reached(-300.0, -150.0)),
    }


BARS = (
    *at_least("return_ratio", LEAST, MEAN),
    *between("updates_share", 1 - TOLERANCE, 1 + TOLERANCE),
    *told("loss_ratio", "return_whole", "return_resumed", "killed_at_env_steps"),
)

PROMISE = Promise(
    "P15",
    "A live run that was killed and resumed learns as one that was not, with no burst of updates and no forgetting.",
    tuple(Part(name, SEEDS, partial(pair, example=example), BARS, control=control) for name, example in EXAMPLES.items()),
)
