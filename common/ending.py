"""How a role ends in order: its exit code, done or to be started again since only its buffer has left, and its reason."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line reads the code before it loads anything
    from headrace.common.wire.messages import Stop

BUFFER_LEFT = 5
A_SIGNAL = "a signal"


def end_reason(told: Stop | None, otherwise: str = A_SIGNAL) -> str:
    """Why a role leaves, for the log: what the buffer said last, or where it said nothing ``otherwise``."""
    return otherwise if told is None else told.reason or "the run is over"


def end_code(told: Stop | None, stop: threading.Event) -> int:
    """``BUFFER_LEFT`` where the buffer ended before the run has reached its goal: whoever placed this process starts it again.

    Args:
        told: what the buffer said last.
        stop: set by a signal, which is somebody's wish.
    """
    return BUFFER_LEFT if told is not None and not told.done and not stop.is_set() else 0
