"""Smaller images by means: which pixels of an image make one of a smaller one, and the same in numpy, in whole numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace.common.errors import SpecError
from headrace.common.specs import ObsSpec

Array = np.ndarray[Any, Any]


def seen_at(camera: ObsSpec, size: int) -> ObsSpec:
    """What is left of a camera's images ``(H, W, C)`` at ``size``; 0: all.

    Raises:
        SpecError: they are smaller than that.
    """
    if not size:
        return camera
    height, width, colours = camera.shape
    if min(height, width) < size:
        raise SpecError(
            f"model.options.size: {size}, but the images of spec.obs.{camera.key} are {height} x {width};"
            f" nearest valid: {min(height, width)}"
        )
    return replace(camera, shape=(size, size, colours))


def blocks(length: int, size: int) -> tuple[int, Array]:
    """How ``length`` pixels become ``size``: each is the mean of k neighbours. k, and where each begins, ``(size,)``.

    k is the whole part of ``length / size``, so images are means of all their pixels where that is a whole number; else some
    pixels between two blocks are left out, and each block lies in the middle of what it stands for.
    """
    k = length // size
    return k, ((2 * np.arange(size) + 1) * length - k * size) // (2 * size)


def shrunk(images: Array, size: int) -> Array:
    """``(..., H, W, C)`` uint8 as ``(..., size, size, C)`` uint8, rounded half up; H and W are at least ``size``."""
    (high, top), (wide, left) = (blocks(length, size) for length in images.shape[-3:-1])
    rows: Array = np.add.reduce([images[..., top + i, :, :].astype(np.int32) for i in range(high)])
    total: Array = np.add.reduce([rows[..., left + j, :] for j in range(wide)])
    count = high * wide
    return np.asarray((total + count // 2) // count, np.uint8)
