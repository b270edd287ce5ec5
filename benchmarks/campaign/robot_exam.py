"""An exam: a policy drives the arm behind its guard, in real time and without help, and what it achieves is counted."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from headrace.actor.config import ActorConfig, TeleopConfig
from headrace.actor.guard import Vitals
from headrace.actor.policy import Policy, make_policy
from headrace.actor.robot_lanes import RobotLanes
from headrace.common.clock import MonotonicClock
from headrace.common.config import replace
from headrace.common.specs import OUTCOME_SUCCESS
from headrace.launch.config import RunConfig
from headrace.launch.play import find_policy, read_policy, read_spec, share_interval


def examine(config: RunConfig, where: Path, episodes: int) -> dict[str, Any]:
    """``episodes`` episodes of the policy that ``where`` has, deterministic; goals are those of no other run.

    Returns:
        ``success`` and its 95 % interval, ``episodes``, ``steps`` (mean), ``update`` (of the policy) and ``late`` (holds).
    """
    path = find_policy(where)
    weights, spec = read_policy(path), read_spec(path)
    policy = make_policy(weights, spec, ActorConfig(policy="numpy"))
    env = replace(config.env, kwargs={k: v for k, v in config.env.kwargs.items() if k != "record"})
    robot = replace(config.robot, teleop=TeleopConfig())
    clock, stop = MonotonicClock(), threading.Event()
    lanes = RobotLanes(env, robot, spec, (config.seed, "exam", 0), lambda: Vitals(clock.now(), 0.0), lambda report: None, stop)
    try:
        wins, steps = _play(lanes, policy, episodes)
        late = int(lanes.report.get("guard", {}).get("late", 0))
    finally:
        lanes.close()
    low, high = share_interval(wins, episodes)
    interval = [round(low, 4), round(high, 4)]
    figures = {"success": wins / episodes, "interval": interval, "episodes": episodes, "steps": round(steps / episodes, 2)}
    return {**figures, "update": weights.version.step, "late": late}


def _play(lanes: RobotLanes, policy: Policy, episodes: int) -> tuple[int, int]:
    """How many episodes succeeded, and steps of all."""
    rng, wins, done, steps = np.random.default_rng(0), 0, 0, 0
    obs = lanes.reset().obs
    while done < episodes:
        step = lanes.step(policy.act(obs, rng, True)) if lanes.running else lanes.hold()
        obs = step.obs
        steps += int(step.live[0])
        if step.live[0] and (step.terminated[0] or step.truncated[0]):
            done, wins = done + 1, wins + int(step.success[0] == OUTCOME_SUCCESS)
    return wins, steps
