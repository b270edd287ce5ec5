"""A process that drives a fake arm for ever, to be killed: ``python -m helpers.robot_actor RECORD [RATE_HZ [TTY]]``.

With the path of a terminal its keys drive the arm.
"""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from headrace.actor.config import EnvConfig, RobotConfig, TeleopConfig, WindowConfig
from headrace.actor.envs import make_spec
from headrace.actor.guard import Vitals
from headrace.actor.limits import GuardConfig
from headrace.actor.robot_lanes import RobotLanes


def main(record: str, rate_hz: float, tty: str) -> None:
    env = EnvConfig("headrace.actor.fake_arm:FakeArm", kwargs={"record": record, "size": 8}, max_episode_steps=20)
    guard = GuardConfig(low=(-1.5,), high=(1.5,), max_delta=(0.2,), max_rate=(9.0,))
    teleop = TeleopConfig("keyboard", {"step": 0.05, "tty": tty}) if tty else TeleopConfig()
    config = RobotConfig(rate_hz=rate_hz, operator="headrace.actor.operator:Willing", teleop=teleop, guard=guard)
    spec = make_spec(env, WindowConfig(), robot=True)

    def vitals() -> Vitals:
        return Vitals(time.monotonic(), 0.0)

    lanes = RobotLanes(env, config, spec, (0, "arm", 1), vitals, lambda report: None, threading.Event())
    lanes.reset()
    rng = np.random.default_rng(0)
    while True:
        lanes.step(rng.uniform(-0.5, 0.5, (1, 6)).astype(np.float32))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 50.0, sys.argv[3] if len(sys.argv) > 3 else "")
