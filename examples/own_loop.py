#!/usr/bin/env python
"""A robot's own loop in a run: two cameras and joints at 20 Hz. Needs numpy, pyzmq, msgpack and msgpack-numpy only.

python examples/own_loop.py tcp://gpu-host:5555 arm-0
"""

import sys
import time

import numpy as np

from headrace.actor import ActorConfig, TransitionSpec, connect

PERIOD_S, EPISODE_STEPS = 0.05, 100


class Arm:
    """Stands for your driver: joints that follow their targets."""

    def __init__(self) -> None:
        self.joints = np.zeros(6, np.float32)

    def observe(self) -> dict[str, np.ndarray]:
        """What the robot sees and feels now."""
        image = np.full((128, 128, 3), int(abs(self.joints[0]) * 80), np.uint8)
        return {"joints": self.joints.copy(), "front": image, "wrist": image}

    def move(self, velocity: np.ndarray) -> None:
        """Carry out one action."""
        self.joints += np.float32(PERIOD_S) * velocity  # your limits come before this line


def main(endpoint: str, name: str, episodes: int) -> None:
    arm = Arm()
    spec = TransitionSpec.like(arm.observe(), low=[-1] * 6, high=[1] * 6)
    config = ActorConfig(spool="spool", spool_bytes=1 << 28, when_full="drop_oldest")
    with connect(endpoint, name, spec, actor=config) as session:
        session.policy(timeout_s=600)  # waits until there is one
        for _ in range(episodes):
            session.begin(arm.observe())
            due, reached = time.monotonic(), False
            for t in range(EPISODE_STEPS):
                action = session.act(arm.observe())
                arm.move(action)
                due += PERIOD_S
                time.sleep(max(0.0, due - time.monotonic()))
                reached = bool(arm.joints[0] > 1.0)
                session.record(arm.observe(), action, float(reached), reached, t + 1 == EPISODE_STEPS)
                if reached or session.ended:
                    break
            if reached:
                session.success()
            if session.ended:
                break
    print(session.counts)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10)
