"""Logs of roles: appended to over many lives, and bounded: what was before lies in one older file, which the next replaces."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import BinaryIO

LOG_BYTES = 4 << 20


def open_log(path: Path) -> BinaryIO:
    """``path`` to append to; where it holds :data:`LOG_BYTES` already it begins anew, and becomes ``NAME.old.log``."""
    with contextlib.suppress(OSError):
        if path.stat().st_size >= LOG_BYTES:
            path.replace(path.with_suffix(f".old{path.suffix}"))
    return path.open("ab")
