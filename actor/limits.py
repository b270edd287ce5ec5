"""What a robot is allowed: limits that have no default, ages, and the reaction to each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.actor.robot import RobotState
from headrace.common.config import option
from headrace.common.errors import ConfigError
from headrace.common.naming import resolve

Array = np.ndarray[Any, Any]
Workspace = Callable[[Array, RobotState], str | None]
REACTIONS = ("continue", "finish_episode", "hold", "stop")
PATH = "robot.guard"


@dataclass(frozen=True)
class GuardConfig:
    """Limits of commands, ages of what a command rests on, and what to do when they are passed. See docs/safety.md."""

    # What commands are, and their limits: one number for all dimensions, or one a dimension. No default: a robot needs them.
    command: str = option(
        "position",
        help="position: a hold repeats the last command; displacement: commands are velocities or steps, a hold is zero",
        choices=("position", "displacement"),
    )
    low: tuple[float, ...] = option((), help="least command, env units; robots need it")
    high: tuple[float, ...] = option((), help="largest command, env units; robots need it")
    max_delta: tuple[float, ...] = option((), help="largest change from one command to the next, env units; robots need it")
    max_rate: tuple[float, ...] = option((), help="largest change of commands, env units a second; robots need it")
    workspace: str = option("", help="module:function of (command, state) that returns why it is refused, or nothing")

    # Ages, and the reaction to what is older: go on, let the episode end and begin none, hold, or stop
    frame_age_s: float = option(0.5, help="oldest picture of any camera", unit="s", low=0.001)
    frame_repeats: int = option(5, help="most times in a row that a camera may give the same picture", low=0)
    frame_reaction: str = option("hold", help="to older pictures, or more repeats", choices=REACTIONS)
    action_age_s: float = option(
        1.0,
        help="oldest observation that a policy's action may rest on; on an older one the robot holds",
        unit="s",
        low=0.001,
    )
    weight_age_s: float = option(
        600.0, help="longest time to act by the same weights while newer ones are there or due", unit="s", low=0.001
    )
    weight_reaction: str = option("finish_episode", help="to older weights", choices=REACTIONS)
    link_age_s: float = option(10.0, help="longest silence of the buffer", unit="s", low=0.001)
    link_reaction: str = option("finish_episode", help="to a longer silence", choices=REACTIONS)

    # From hold to stop
    late: int = option(2, help="periods in a row without an action in time after which the robot stops", unit="periods", low=1)
    hold_s: float = option(1.0, help="longest hold, whatever its cause, after which the robot stops", unit="s", low=0)

    def missing(self) -> list[str]:
        """Keys of the limits that are not given."""
        return [f"{PATH}.{name}" for name in ("low", "high", "max_delta", "max_rate") if not getattr(self, name)]

    def require(self, dim: int) -> None:
        """Refuse limits that are not all there or do not fit a robot of ``dim`` dimensions.

        Raises:
            ConfigError: naming every field, what was found and what is valid.
        """
        if missing := self.missing():
            raise ConfigError(
                f"{', '.join(missing)}: not given, and a robot does not move without limits; give one number for all"
                f" dimensions, or {dim}"
            )
        for name in ("low", "high", "max_delta", "max_rate"):
            bounds = getattr(self, name)
            if len(bounds) not in (1, dim):
                raise ConfigError(f"{PATH}.{name}: {len(bounds)} numbers for a robot of {dim} dimensions; nearest valid: {dim}")
            for value in bounds:
                if not math.isfinite(value) or (name.startswith("max") and value <= 0):
                    raise ConfigError(f"{PATH}.{name}: {value} is no limit; expected finite numbers, above 0 for changes")
        for i, (low, high) in enumerate(zip(np.resize(self.low, dim), np.resize(self.high, dim), strict=True)):
            if not low < high:
                raise ConfigError(f"{PATH}.low: {low:g} is not below {PATH}.high {high:g} in dimension {i}")
            if self.command == "displacement" and not low <= 0 <= high:
                raise ConfigError(f"{PATH}.low: the box [{low:g}, {high:g}] of dimension {i} has no place for rest, which is 0")

    def find_workspace(self) -> Workspace | None:
        """The function that ``workspace`` names; none when it names none.

        Raises:
            ConfigError: it cannot be imported, or is no function.
        """
        if not self.workspace:
            return None
        found: Workspace = resolve(self.workspace, f"{PATH}.workspace")
        return found
