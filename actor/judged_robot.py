"""A success classifier over a robot's driver: reward 1 where success is held, which ends the episode, and else 0."""

from __future__ import annotations

from dataclasses import replace

from headrace.actor.robot import Command, Observation, Robot, RobotState
from headrace.actor.success import Judge
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS


class JudgedRobot:
    """The :class:`headrace.actor.robot.Robot` of a driver, whose steps a classifier judges in its place.

    What is seen behind the command of an episode is judged, nothing else: neither while people set the scene, nor the first
    observation. Pictures that are all stamped as those before are the same ones, and do not count again.

    Args:
        robot: the driver.
        judge: looks at its pictures.
    """

    def __init__(self, robot: Robot, judge: Judge) -> None:
        self._robot, self._judge = robot, judge
        self.obs, self.action = robot.obs, robot.action
        self._acts = self._said = False
        self._stamps: list[float | None] = []

    def connect(self) -> None:
        """As the driver."""
        self._robot.connect()

    def reset(self, episode: int, seed: int) -> None:
        """As the driver."""
        self._robot.reset(episode, seed)

    def observe(self) -> Observation:
        """What the driver sees, and behind a step of an episode what the classifier says of it."""
        seen = self._robot.observe()
        if not self._acts:
            self._judge.restart()
            self._stamps, self._said = [], False
            return seen
        stamps = [seen.stamps.get(key) for key in self._judge.cameras]
        if stamps != self._stamps or None in stamps:
            self._said = self._judge.sees(seen.values)
        self._stamps = stamps
        outcome = OUTCOME_SUCCESS if self._said else OUTCOME_FAILURE
        ends = seen.terminated or self._said
        return replace(seen, reward=float(self._said), terminated=ends, outcome=outcome, judged=self._said)

    def act(self, command: Command) -> bool:
        """As the driver."""
        self._acts = command.episode >= 0
        return self._robot.act(command)

    def stop(self) -> None:
        """As the driver."""
        self._acts = False
        self._robot.stop()

    def state(self) -> RobotState:
        """As the driver."""
        return self._robot.state()

    def close(self) -> None:
        """As the driver."""
        self._robot.close()
