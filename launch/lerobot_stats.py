"""Least, largest, mean and spread of a feature over all frames, as LeRobotDatasets say them: pictures by band, from 0 to 1."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Stats:
    """Of one feature, counted as frames come.

    Args:
        camera: whether it is one, ``(n, h, w, bands)`` bytes; its figures are ``(bands, 1, 1)``.
    """

    def __init__(self, *, camera: bool) -> None:
        self._camera, self._frames, self._count = camera, 0, 0
        self._low: Array | None = None
        self._high = self._sum = self._square = np.zeros(())

    def add(self, values: Array) -> None:
        """Count ``(n, *shape)``."""
        numbers = values.astype(np.float64)
        if self._camera:
            numbers = numbers.reshape(-1, values.shape[-1]) / 255
        elif numbers.ndim == 1:
            numbers = numbers[:, None]
        low, high = numbers.min(axis=0), numbers.max(axis=0)
        total, square = numbers.sum(axis=0), np.square(numbers).sum(axis=0)
        if self._low is not None:
            low, high = np.minimum(low, self._low), np.maximum(high, self._high)
            total, square = total + self._sum, square + self._square
        self._low, self._high, self._sum, self._square = low, high, total, square
        self._count += len(numbers)
        self._frames += len(values)

    def to_dict(self) -> dict[str, Any]:
        """``min, max, mean, std, count``."""
        mean = self._sum / self._count
        std = np.sqrt(np.maximum(self._square / self._count - np.square(mean), 0))
        figures = {"min": self._low, "max": self._high, "mean": mean, "std": std}
        shaped = {name: np.asarray(f)[:, None, None] if self._camera else np.asarray(f) for name, f in figures.items()}
        return {**{name: f.tolist() for name, f in shaped.items()}, "count": [self._frames]}
