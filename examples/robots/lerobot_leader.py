"""A leader arm of LeRobot as teleop device: `robot.teleop.device: examples.robots.lerobot_leader:LeRobotLeader`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from examples.robots.lerobot_arm import made, reach
from headrace.actor.robot import Observation, Robot
from headrace.actor.teleop import NOBODY, Reading
from headrace.common.errors import ConfigError
from headrace.common.specs import ActionSpec

Array = np.ndarray[Any, Any]


class LeRobotLeader:
    """A :class:`headrace.actor.teleop.Teleop`: who moves the leader arm drives the robot, whose commands are the same numbers.

    It is taken in hand when a joint has moved by more than ``moved`` from where it lay, and given back when none has for
    ``rest_s``. The robot holds until the leader is where it is itself (`robot.teleop.agree_within`), so that nothing jumps.

    Args:
        action: the robot's commands.
        teleop: what LeRobot's commands take as `--teleop.*`, such as type, port and id.
        moved: by how much, in units of the arm.
        rest_s: how long it must rest.
    """

    gives = "position"

    def __init__(self, action: ActionSpec, teleop: Mapping[str, Any], moved: float = 2.0, rest_s: float = 2.0) -> None:
        self._leader = made("teleoperators", teleop)
        self._named, self._moved, self._rest_s = f"{teleop.get('type')} at {teleop.get('port')}", moved, rest_s
        self._joints = list(self._leader.action_features)
        if len(self._joints) != action.dim:
            raise ConfigError(
                f"robot.teleop.kwargs: leader {self._named} gives {len(self._joints)} numbers, and the robot takes {action.dim}"
            )
        self._lay: Array | None = None  # where it was when it last moved
        self._moved_at = -np.inf

    def connect(self, robot: Robot) -> None:
        """Reach the leader; its motors are loose."""
        reach(self._leader, f"leader {self._named}")

    def read(self, now: float, seen: Observation) -> Reading:
        """Where the leader is, while somebody has it in hand."""
        given = self._leader.get_action()
        joints = np.array([given[name] for name in self._joints], np.float32)
        if self._lay is None:
            self._lay = joints
        if np.abs(joints - self._lay).max() > self._moved:
            self._lay, self._moved_at = joints, now
        return Reading(joints) if now - self._moved_at < self._rest_s else NOBODY

    def close(self) -> None:
        """Let go."""
        if self._leader.is_connected:
            self._leader.disconnect()
