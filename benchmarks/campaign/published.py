"""Published returns of SAC that our curves are drawn against.

MuJoCo tasks: mean, standard deviation and, where it is told, worst of ten seeds, from the public result files of SimbaV2.
Pendulum-v1: the range of published levels at 20,000 env steps or more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """Mean and standard deviation over seeds at ``env_steps``, and the worst seed."""

    env_steps: int
    mean: float
    std: float
    worst: float | None = None


MUJOCO = {
    "HalfCheetah-v4": (
        Point(16_000, 547, 354, 64),
        Point(33_000, 2518, 665, 971),
        Point(50_000, 4212, 498, 3463),
        Point(100_000, 6156, 700, 4986),
    ),
    "Hopper-v4": (Point(16_000, 249, 90), Point(33_000, 404, 281)),
    "Walker2d-v4": (Point(16_000, 194, 114), Point(33_000, 268, 150)),
}
PENDULUM_V1 = (-157.0, -151.0)
