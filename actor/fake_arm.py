"""A fake arm in plain numpy: joints with limits, lag and noise, and cameras, for dry runs and tests without hardware."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headrace.actor.fake_camera import FakeCamera
from headrace.actor.freshness import cameras_of
from headrace.actor.robot import Command, Observation, RobotState
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import ConfigError
from headrace.common.specs import OUTCOME_SUCCESS, OUTCOME_UNKNOWN, ActionSpec, ObsSpec, TransitionSpec

Array = np.ndarray[Any, Any]
LINKS = (0.10, 0.30, 0.25, 0.10, 0.08, 0.06)  # m, along each joint's z, repeated for longer arms
AXES = "zyyzyz"  # about which the joints turn, in turn
REACHED = 0.05  # m


class FakeArm:
    """A :class:`headrace.actor.robot.Robot` whose commands move its joints, and whose task is to reach a point.

    The joints follow their target with a lag, no faster than ``max_speed``, and are measured with noise. The reward is minus
    the distance of the hand from the goal (m); reaching it ends the episode with success. Pictures show the hand and the goal
    from the front and from above in turn; no other observation knows of the goal.

    Args:
        joints: A.
        cameras: names of cameras.
        size: height and width of pictures.
        reach: bound of each joint (rad), both ways.
        step: bound of a command that moves each joint's target by so much (rad); 0: commands are the targets themselves.
        start: pose ``(A,)`` (rad) that a reset brings the arm to at once; empty: it stays where it is.
        goals: how far the joints of a goal are from ``start`` at most (rad); none: half of ``reach``, around zero.
        within: how near to the goal the hand has reached it (m).
        lag_s: time constant with which joints follow.
        max_speed: of a joint (rad/s).
        noise: standard deviation of a measured joint (rad).
        camera_hz: pictures a second.
        stutter: probability that a picture is left out.
        freeze: (from, to) in seconds after :meth:`connect` in which all cameras repeat their last picture.
        record: file to which every command, stop and reset is appended as one JSON line; empty: none.
        seed: of noise.
        clock: the monotonic one.
    """

    def __init__(
        self,
        joints: int = 6,
        cameras: Sequence[str] = ("front", "top"),
        size: int = 64,
        *,
        reach: float = 1.5,
        step: float = 0.0,
        start: Sequence[float] = (),
        goals: float | None = None,
        within: float = REACHED,
        lag_s: float = 0.05,
        max_speed: float = 3.0,
        noise: float = 0.001,
        camera_hz: float = 30.0,
        stutter: float = 0.0,
        freeze: Sequence[Sequence[float]] = (),
        record: str = "",
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        keys = [ObsSpec("arm.position", (joints,), "<f4"), ObsSpec("arm.velocity", (joints,), "<f4")]
        keys += [ObsSpec(f"camera.{name}", (size, size, 3), "|u1") for name in cameras]
        self.obs = tuple(sorted(keys, key=lambda o: o.key))
        bound = step or reach
        self.action = ActionSpec((joints,), (-bound,) * joints, (bound,) * joints)
        self._low, self._high, self._steps = np.full(joints, -reach), np.full(joints, reach), step > 0
        self._start, self._goals, self._within = np.array(start, np.float64), goals, within
        self._lag_s, self._max_speed, self._noise = lag_s, max_speed, noise
        self._views = (camera_hz, stutter, freeze)
        self._record = Path(record) if record else None
        self._rng = np.random.default_rng(seed)
        self._clock = clock or MonotonicClock()
        self._log: BinaryIO | None = None
        self._joints, self._speed = np.zeros(joints), np.zeros(joints)
        self._target, self._goal = np.zeros(joints), np.zeros(3)
        self._moved_at = self._clock.now()
        self._cameras: dict[str, FakeCamera] = {}
        self.fault = ""

    @classmethod
    def like(cls, spec: TransitionSpec, **options: Any) -> FakeArm:
        """An arm that takes the commands and gives the observations of another robot.

        Raises:
            ConfigError: its commands are chunks.
        """
        if len(spec.action.shape) != 1:
            raise ConfigError(f"spec.action: {spec.action.shape}; a fake arm takes one command a period")
        arm = cls(spec.action.dim, (), **options)
        arm.obs, arm.action = spec.obs, spec.action
        arm._low, arm._high = np.array(spec.action.low), np.array(spec.action.high)
        return arm

    @property
    def joints(self) -> Array:
        """``(A,)`` rad, where the joints are, without noise: what a person sees, and no policy."""
        return self._joints

    @property
    def goal(self) -> Array:
        """``(3,)`` m, where the hand is to go; likewise."""
        return self._goal

    # --- robot ------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Begin to log, and start the cameras."""
        if self._record is not None:
            self._log = self._record.open("ab", buffering=0)  # a SIGKILL loses no line
        hz, stutter, freeze = self._views
        shapes = {o.key: o.shape for o in self.obs}
        self._cameras = {k: FakeCamera(shapes[k], hz, self._rng, stutter, freeze) for k in cameras_of(self.obs)}
        self._moved_at = self._clock.now()

    def reset(self, episode: int, seed: int) -> None:
        """Draw a goal that the arm can reach; without ``start`` it does not move."""
        if len(self._start):
            self._move(self._clock.now())
            self._joints, self._target = self._start.copy(), self._start.copy()
        around = self._start if len(self._start) else np.zeros(len(self._joints))
        bounds = np.minimum(np.abs(self._low), np.abs(self._high)) / 2 if self._goals is None else self._goals
        way = np.random.default_rng(seed).uniform(-1, 1, len(around)) * bounds
        self._goal = hand_of(np.clip(around + way, self._low, self._high))
        self._write({"what": "reset", "episode": episode})

    def observe(self) -> Observation:
        """Joints, pictures, and how far the hand is from the goal."""
        now = self._clock.now()
        self._move(now)
        hand = hand_of(self._joints)
        values, stamps = self._numbers(), {}
        views = [(hand[[0, 2]], self._goal[[0, 2]]), (hand[[0, 1]], self._goal[[0, 1]])]
        for i, (key, camera) in enumerate(self._cameras.items()):
            points = [(float(p[0] / 2 + 0.5), float(0.5 - p[1] / 2)) for p in views[i % 2]]
            values[key], stamps[key] = camera.take(now, points)
        distance = float(np.linalg.norm(hand - self._goal))
        there = distance < self._within
        return Observation(values, stamps, -distance, there, False, OUTCOME_SUCCESS if there else OUTCOME_UNKNOWN)

    def act(self, command: Command) -> bool:
        """Follow the command, if its deadline has not passed."""
        now = self._clock.now()
        what = {"what": "act", "kind": command.kind, "episode": command.episode, "tick": command.tick}
        late = now > command.deadline
        deadline = None if math.isinf(command.deadline) else command.deadline
        self._write({**what, "at": now, "deadline": deadline, "done": not late, "action": command.action.tolist()})
        if not late:
            self._move(now)
            wanted = command.action.astype(np.float64)
            self._target = np.clip(self._target + wanted, self._low, self._high) if self._steps else wanted
        return not late

    def stop(self) -> None:
        """Stay where it is."""
        self._move(self._clock.now())
        self._target = self._joints.copy()
        self._write({"what": "stop"})

    def state(self) -> RobotState:
        """Measured joints, and ``fault`` as a test has set it."""
        return RobotState(self._measured(), self.fault)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- parts ------------------------------------------------------------------------------------------------------

    def _move(self, now: float) -> None:
        """Let the joints follow until ``now``."""
        dt = max(0.0, now - self._moved_at)
        self._moved_at = now
        if dt == 0:
            return
        way = (self._target - self._joints) * -math.expm1(-dt / self._lag_s)
        way = np.clip(way, -self._max_speed * dt, self._max_speed * dt)
        self._joints = np.clip(self._joints + way, self._low, self._high)
        self._speed = way / dt

    def _measured(self) -> Array:
        measured = self._joints + self._rng.normal(0, self._noise, len(self._joints))
        return np.clip(measured, self._low, self._high).astype(np.float32)

    def _numbers(self) -> dict[str, Array]:
        """Positions, velocities, and for keys of another robot as many of its numbers as they hold."""
        found: dict[str, Array] = {}
        for o in self.obs:
            if o.key not in self._cameras:
                source = self._speed if o.key == "arm.velocity" else self._measured()
                found[o.key] = np.resize(source, o.shape).astype(o.dtype)
        return found

    def _write(self, what: Mapping[str, Any]) -> None:
        if self._log is not None:
            self._log.write(json.dumps({"at": self._clock.now(), **what}).encode() + b"\n")


def stand_in(spec: Mapping[str, Any], **options: Any) -> FakeArm:
    """``env.id: headrace.actor.fake_arm:stand_in``: :meth:`FakeArm.like`, of a spec as plain values."""
    return FakeArm.like(TransitionSpec.from_dict(spec), **options)


def hand_of(joints: Array) -> Array:
    """Where the hand is, ``(3,)`` in m, by the joints' angles ``(A,)``: turn about each joint's axis, go along its z."""
    place, frame = np.zeros(3), np.eye(3)
    for i, angle in enumerate(joints):
        c, s = math.cos(angle), math.sin(angle)
        turn = [[c, -s, 0], [s, c, 0], [0, 0, 1]] if AXES[i % len(AXES)] == "z" else [[c, 0, s], [0, 1, 0], [-s, 0, c]]
        frame = frame @ np.array(turn)
        place = place + frame[:, 2] * LINKS[i % len(LINKS)]
    return place
