"""Rounding inwards: bounds in float64 as float32 that never reach beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def inwards(low: Array, high: Array) -> tuple[Array, Array]:
    """``low`` rounded up and ``high`` rounded down to float32; where no float32 lies between them, the first is the larger."""
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
    high32 = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    return low32, high32
