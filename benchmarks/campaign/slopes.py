"""Whether something grows: the slope of a series over time with its 95 % interval, by what noise there is in it.

Neighbouring samples are alike, so an interval from single samples would be far too narrow. The series is cut into blocks of
equal time, and the line is fitted to their means, which are taken for independent (batch means; Law, Simulation Modeling and
Analysis, chapter 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCKS = 12
T_975 = 2.228  # of Student's t with BLOCKS - 2 degrees of freedom
HOUR_S = 3600.0


@dataclass(frozen=True)
class Slope:
    """Growth an hour, and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def grows(self, tolerance: float) -> bool:
        """Whether it is surely more than ``tolerance`` an hour."""
        return self.low > tolerance


def slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """The slope of samples ``(n,)`` at times ``(n,)`` in s.

    Raises:
        ValueError: there are fewer samples than blocks.
    """
    t, y = np.asarray(times, np.float64), np.asarray(values, np.float64)
    if len(t) < BLOCKS:
        raise ValueError(f"{len(t)} samples, at least {BLOCKS}")
    parts = np.array_split(np.arange(len(t)), BLOCKS)
    x, means = np.array([t[p].mean() for p in parts]), np.array([y[p].mean() for p in parts])
    x = (x - x.mean()) / HOUR_S
    spread = float((x**2).sum())
    b = float((x * (means - means.mean())).sum() / spread)
    rest = means - means.mean() - b * x
    error = float(np.sqrt((rest**2).sum() / (BLOCKS - 2) / spread))
    return Slope(b, b - T_975 * error, b + T_975 * error)
