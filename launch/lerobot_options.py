"""What a LeRobotDataset says that rows of a pool do not."""

from __future__ import annotations

from dataclasses import dataclass

LAYOUTS = ("3.0", "2.1")


@dataclass(frozen=True)
class LeRobotOptions:
    """What rows do not say.

    Attributes:
        cameras: ``video`` or ``image``.
        fps: steps a second; none takes what the pool says.
        tasks: texts of tasks 0, 1, ... where the pool says none.
        robot_type: of the robot.
        layout: one of ``LAYOUTS``.
    """

    cameras: str = "video"
    fps: float | None = None
    tasks: tuple[str, ...] = ()
    robot_type: str = "unknown"
    layout: str = LAYOUTS[0]
