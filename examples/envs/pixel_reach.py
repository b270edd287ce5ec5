"""The reach task for a camera alone: fingertip and target are seen in a picture of 48 x 48 and nowhere else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from examples.envs.reach import Reach, draw

SIZE = 48


class PixelReach(Reach):
    """:class:`Reach` whose observation is its picture; by default nearer, larger, and rewarded by distance.

    Args:
        reward: ``dense``, minus the distance at each step; or ``sparse``, 1 for the touch.
        tolerance: distance that counts as a touch; a pixel is 0.042 wide.
        gap: least distance at the start.
        kwargs: further ones of :class:`Reach`.
    """

    def __init__(self, reward: str = "dense", tolerance: float = 0.1, gap: float = 0.4, **kwargs: Any) -> None:
        super().__init__(reward, tolerance, gap, **kwargs)

    def _space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)

    def _observe(self) -> np.ndarray[Any, Any]:
        return draw(self.tip, self.target, SIZE)
