"""The seam for devices with which people drive a robot: what a human wants in each period, and the words that keys say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from headrace.actor.config import TeleopConfig
from headrace.actor.robot import Observation, Robot
from headrace.common.errors import ConfigError
from headrace.common.naming import resolve
from headrace.common.specs import ActionSpec

Array = np.ndarray[Any, Any]
GIVES = ("position", "displacement")
DEVICES = {"keyboard": "headrace.actor.keyboard:Keyboard", "gamepad": "headrace.actor.gamepad:Gamepad"}
METHODS = ("connect", "read", "close")


@dataclass(frozen=True)
class Reading:
    """What a human wants in one period.

    Attributes:
        action: ``(A,)``, what the robot is to do, in env units; none: the human does not hold the robot.
        words: what was said since the last reading, of :data:`headrace.actor.words.WORDS`.
    """

    action: Array | None = None
    words: tuple[str, ...] = ()


NOBODY = Reading()


class Teleop(Protocol):
    """A device. The process of the robot makes it and reads it in every period, so nothing but ``connect`` may take time.

    What it wants passes the same guard as what a policy wants.

    Attributes:
        gives: ``position`` where actions are places that the robot's command is to be at, as of an arm that is moved by hand;
            ``displacement`` where they are by how much the command is to change in this period, as of a stick.
    """

    gives: str

    def connect(self, robot: Robot) -> None:
        """Reach the device; ``robot`` is what it drives, connected.

        Raises:
            EnvError: it cannot be reached, and what to do.
        """
        ...

    def read(self, now: float, seen: Observation) -> Reading:
        """What the human wants now (monotonic s), who sees what the robot sees. It never waits.

        Raises:
            EnvError: the device is gone; the robot stops.
        """
        ...

    def close(self) -> None:
        """Let go of the device, and leave everything as it was found; safe to call twice."""
        ...


class NoTeleop:
    """Nobody drives."""

    gives = "displacement"

    def connect(self, robot: Robot) -> None:
        """Nothing."""

    def read(self, now: float, seen: Observation) -> Reading:
        """Nobody wants anything."""
        return NOBODY

    def close(self) -> None:
        """Nothing."""


def make_teleop(config: TeleopConfig, action: ActionSpec, command: str) -> Teleop:
    """The device that ``config`` names, not connected.

    Args:
        config: device and its arguments.
        action: the robot's commands.
        command: what these are, as ``robot.guard.command`` says.

    Raises:
        ConfigError: it cannot be imported or made, or its actions are none of this robot.
    """
    if config.device == "none":
        return NoTeleop()
    make = resolve(DEVICES.get(config.device, config.device), "robot.teleop.device")
    try:
        found: Any = make(action, **config.kwargs)
    except ConfigError:
        raise
    except Exception as error:  # whatever a foreign constructor raises becomes our one line
        raise ConfigError(f"robot.teleop.device: {config.device!r}: {type(error).__name__}: {error}") from error
    if not all(hasattr(found, name) for name in METHODS) or getattr(found, "gives", "") not in GIVES:
        raise ConfigError(
            f"robot.teleop.device: {config.device!r} makes a {type(found).__name__}; it needs {', '.join(METHODS)}, and gives"
            f" that is {' or '.join(GIVES)}"
        )
    if found.gives == "position" and command != "position":
        raise ConfigError(
            f"robot.teleop.device: {config.device!r} gives positions, and robot.guard.command is {command}; nearest valid: a"
            " device that gives displacements"
        )
    return cast("Teleop", found)
