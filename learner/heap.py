"""The heap: it keeps what a learner frees for what it takes next, so that the kernel need not clear the same pages anew."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

LARGEST_BYTES = 32 << 20  # that may come from the heap; glibc allows no more
KEPT_BYTES = 512 << 20  # free at the heap's end, before any goes back to the kernel
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_SAID_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed(environment: Mapping[str, str] = os.environ) -> bool:
    """Have this process keep the memory that it frees, unless the user's environment says how; whether it does from now on.

    An update takes and frees some megabytes for each layer, always as many. By default glibc gives them back at the next
    chance, and clearing them again took a third of an update of small images (40 ms with 6,000 to 9,000 page faults, 30 ms
    with none, one core). Another C library than glibc is left as it is.
    """
    if any(name in environment for name in _SAID_BY_USER) or "glibc.malloc." in environment.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))
