"""A fake camera: small rendered pictures at a rate of its own, which can freeze and stutter as real ones do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
GRAIN = 12  # noise of a pixel, so that no two pictures of a working camera are alike
RADIUS = 0.06  # of a drawn point, in widths of the picture


class FakeCamera:
    """Sees points of a plane.

    Args:
        shape: (H, W, C) of its pictures.
        hz: pictures a second.
        rng: source of grain and stutter.
        stutter: probability that a picture is left out.
        freeze: (from, to) in seconds of its life in which it repeats its last picture.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        hz: float,
        rng: np.random.Generator,
        stutter: float = 0.0,
        freeze: Sequence[Sequence[float]] = (),
    ) -> None:
        self._shape, self._hz, self._rng = shape, hz, rng
        self._stutter, self._freeze = stutter, [(float(a), float(b)) for a, b in freeze]
        y, x = np.mgrid[: shape[0], : shape[1]]
        self._x, self._y = x / shape[1], y / shape[0]
        self._start: float | None = None
        self._number = -1
        self._picture, self._stamp = np.zeros(shape, np.uint8), 0.0

    def take(self, now: float, points: Sequence[tuple[float, float]]) -> tuple[Array, float]:
        """The newest picture and when it was taken; point i, in [0, 1] to the right and down, has colour i."""
        if self._start is None:
            self._start = now
        age = now - self._start
        number = int(age * self._hz)
        frozen = any(begin <= age < end for begin, end in self._freeze)
        if number != self._number and not frozen:
            first, self._number = self._number < 0, number
            if first or self._rng.random() >= self._stutter:
                self._picture, self._stamp = self._draw(points), self._start + number / self._hz
        return self._picture, self._stamp

    def _draw(self, points: Sequence[tuple[float, float]]) -> Array:
        picture = self._rng.integers(0, GRAIN, self._shape, np.uint8)
        for i, (x, y) in enumerate(points):
            near = (self._x - x) ** 2 + (self._y - y) ** 2 < RADIUS**2
            picture[near, i % self._shape[2]] = 255 - GRAIN
        return picture
