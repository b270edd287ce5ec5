"""On the way to float32: bounds that never reach beyond those in float64, and whole numbers that it cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_EXACT = 1 << 24  # up to here float32 holds every whole number


def inwards(low: Array, high: Array) -> tuple[Array, Array]:
    """``low`` rounded up and ``high`` rounded down to float32; where no float32 lies between them, the first is the larger."""
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
    high32 = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    return low32, high32


def first_changed(values: Array, start: int = 0) -> str:
    """The first whole number of ``(n, ...)`` that float32 changes, as text of its row, itself and what becomes of it; or empty.

    Rows count from ``start``. Other dtypes than whole numbers of four bytes and more are not looked at: they lose nothing, or
    are rounded as usual.
    """
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 4 or not values.size:
        return ""
    flat = values.reshape(len(values) if values.ndim else 1, -1)
    large = flat > _EXACT
    if values.dtype.kind == "i":
        large |= flat < -_EXACT
    if not large.any():
        return ""
    places = np.argwhere(large)
    found = flat[large]
    size = np.where(found < 0, ~found, found).astype(np.uint64) + (found < 0).astype(np.uint64)  # also of the lowest int64
    odd = size // (size & (~size + np.uint64(1)))
    wrong = np.flatnonzero(odd > _EXACT)
    if not len(wrong):
        return ""
    value = found[wrong[0]]
    return f"row {start + places[wrong[0]][0]} holds {value}, a whole number that float32 would make {int(np.float32(value))}"
