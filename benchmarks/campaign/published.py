"""Published returns of SAC that our curves are drawn against.

HalfCheetah-v4: mean, standard deviation and worst of ten seeds at three env steps, from the public result files of
SimbaV2. Pendulum-v1: the range of published levels at 20,000 env steps or more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """Mean and standard deviation over seeds at ``env_steps``, and the worst seed."""

    env_steps: int
    mean: float
    std: float
    worst: float


HALFCHEETAH_V4 = (Point(16_000, 547, 354, 64), Point(33_000, 2518, 665, 971), Point(50_000, 4212, 498, 3463))
PENDULUM_V1 = (-157.0, -151.0)
