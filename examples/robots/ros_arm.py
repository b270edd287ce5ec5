"""An arm of ROS 2 behind the guard: `env.id: examples.robots.ros_arm:RosArm`, any that ros2_control moves by positions.

Source ROS 2 before the actor starts, in a Python that has its packages and headrace. See docs/robots.md.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.actor.robot import Command, Observation, RobotState
from headrace.common.clock import Clock, MonotonicClock
from headrace.common.errors import ConfigError, EnvError
from headrace.common.specs import ActionSpec, ObsSpec

Array = np.ndarray[Any, Any]
STATE, IMAGES = "state", "images."
COLOURS = {"rgb8": (0, 1, 2), "bgr8": (2, 1, 0)}
WAIT_S, PAUSE_S = 10.0, 0.02
CAMERA = ("topic", "height", "width")


class RosArm:
    """A :class:`headrace.actor.robot.Robot` whose commands are the goals of joints, rad or m, for a position controller.

    Observed are positions and velocities of the joints as one key ``state``, and each camera as ``images.NAME``. What comes by
    topics is as old as its arrival. An episode ends by what people say, a classifier (`env.success`) or its length; rewards are
    those of `env.reward`.

    Args:
        joints: names, in the order of the controller.
        low: least goal of each.
        high: largest.
        states: topic of sensor_msgs/JointState.
        commands: topic of std_msgs/Float64MultiArray, as a forward_command_controller hears.
        cameras: name -> topic of sensor_msgs/Image (rgb8 or bgr8), height and width.
        stale_s: silence of ``states`` that is a fault.
        clock: the monotonic one.
    """

    def __init__(
        self,
        joints: Sequence[str],
        low: Sequence[float],
        high: Sequence[float],
        states: str = "/joint_states",
        commands: str = "/forward_position_controller/commands",
        cameras: Mapping[str, Mapping[str, Any]] | None = None,
        stale_s: float = 0.2,
        clock: Clock | None = None,
    ) -> None:
        if not joints or len(low) != len(joints) or len(high) != len(joints):
            raise ConfigError(f"env.kwargs: {len(low)} low and {len(high)} high, but {len(joints)} joints: {list(joints)}")
        for name, camera in (cameras or {}).items():
            if sorted(camera) != sorted(CAMERA):
                raise ConfigError(f"env.kwargs.cameras.{name}: {sorted(camera)}, expected {', '.join(CAMERA)}")
        self._joints, self._states, self._commands = list(joints), states, commands
        self._cameras = {IMAGES + name: dict(camera) for name, camera in (cameras or {}).items()}
        self._stale_s, self._clock = stale_s, clock or MonotonicClock()
        pictures = [ObsSpec(key, (int(c["height"]), int(c["width"]), 3), "|u1") for key, c in self._cameras.items()]
        self.obs = tuple(sorted([ObsSpec(STATE, (2 * len(joints),), "<f4"), *pictures], key=lambda o: o.key))
        self.action = ActionSpec((len(joints),), tuple(map(float, low)), tuple(map(float, high)))
        self._seen: dict[str, tuple[Array, float]] = {}  # key -> what came last, and when
        self._wrong = ""  # with what came
        self._node: Any = None

    def connect(self) -> None:
        """A node of its own, in a context of its own: no signal handler, and nothing of a node that is here already."""
        self._ros = {name: _ros(name) for name in ("rclpy", "rclpy.context", "rclpy.executors", "rclpy.qos", "rclpy.signals")}
        messages = _ros("sensor_msgs.msg")
        self._array = _ros("std_msgs.msg").Float64MultiArray
        self._context = self._ros["rclpy.context"].Context()
        self._ros["rclpy"].init(
            context=self._context, signal_handler_options=self._ros["rclpy.signals"].SignalHandlerOptions.NO
        )
        self._node = self._ros["rclpy"].create_node("headrace_robot", context=self._context)
        sensors = self._ros["rclpy.qos"].qos_profile_sensor_data
        self._node.create_subscription(messages.JointState, self._states, self._heard_joints, sensors)
        for key, camera in self._cameras.items():
            self._node.create_subscription(messages.Image, camera["topic"], self._heard_image(key), sensors)
        self._publisher = self._node.create_publisher(self._array, self._commands, 1)
        self._executor = self._ros["rclpy.executors"].SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin, name="headrace-ros", daemon=True)
        self._thread.start()
        self._wait_for_all()

    def reset(self, episode: int, seed: int) -> None:
        """Nothing: people set the scene (`robot.gate`), and `robot.home` leads the arm back through the guard."""

    def observe(self) -> Observation:
        """What came last of every topic."""
        seen = dict(self._seen)
        return Observation({key: value for key, (value, _) in seen.items()}, {key: at for key, (_, at) in seen.items()})

    def act(self, command: Command) -> bool:
        """Publish the goals."""
        if self._clock.now() > command.deadline:
            return False
        self._publisher.publish(self._array(data=[float(x) for x in command.action]))
        return True

    def stop(self) -> None:
        """Stay where the joints are."""
        if STATE in self._seen:
            self._publisher.publish(self._array(data=[float(x) for x in self._position()]))

    def state(self) -> RobotState:
        """Where the joints are; a fault where nobody says so any more, or what came cannot be read."""
        silent_s = self._clock.now() - self._seen[STATE][1]
        fault = f"{self._states}: silent for {silent_s:.2f} s" if silent_s > self._stale_s else self._wrong
        return RobotState(self._position(), fault)

    def close(self) -> None:
        """End the node."""
        if self._node is None:
            return
        self._executor.shutdown()
        self._thread.join(WAIT_S)
        self._node.destroy_node()
        self._context.try_shutdown()
        self._node = None

    def _position(self) -> Array:
        return self._seen[STATE][0][: len(self._joints)]

    def _wait_for_all(self) -> None:
        deadline = self._clock.now() + WAIT_S
        while missing := [o.key for o in self.obs if o.key not in self._seen]:
            if self._clock.now() > deadline:
                topics = [self._states if key == STATE else self._cameras[key]["topic"] for key in missing]
                why = f": {self._wrong}" if self._wrong else ""
                raise EnvError(f"nothing came within {WAIT_S:g} s by {', '.join(topics)}{why}")
            self._clock.sleep(PAUSE_S)

    # --- in the thread of the node ------------------------------------------------------------------------------------

    def _heard_joints(self, message: Any) -> None:
        places = {name: i for i, name in enumerate(message.name)}
        if missing := [name for name in self._joints if name not in places]:
            if not set(self._joints) & set(places):
                return  # of other joints: broadcasters may share the topic
            self._wrong = f"{self._states}: no {missing} among {list(places)}"
            return
        order = [places[name] for name in self._joints]
        position = np.asarray(message.position, np.float32)[order]
        velocity = np.asarray(message.velocity, np.float32)
        moving = velocity[order] if len(velocity) else np.zeros_like(position)
        self._seen[STATE] = np.concatenate((position, moving)), self._clock.now()

    def _heard_image(self, key: str) -> Any:
        height, width = int(self._cameras[key]["height"]), int(self._cameras[key]["width"])

        def heard(message: Any) -> None:
            if (message.height, message.width) != (height, width) or message.encoding not in COLOURS:
                self._wrong = (
                    f"{key}: {message.height} x {message.width} {message.encoding}, expected {height} x {width} and"
                    f" {' or '.join(COLOURS)}"
                )
                return
            rows = np.frombuffer(message.data, np.uint8).reshape(height, message.step)[:, : 3 * width]
            self._seen[key] = rows.reshape(height, width, 3)[:, :, COLOURS[message.encoding]].copy(), self._clock.now()

        return heard


def _ros(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnvError(f"ROS 2 is not here ({error}): source its setup.bash, and use its own Python") from error
