"""Time as a value that is passed in: a protocol, the real monotonic clock, and a manual one for tests."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of monotonic time in seconds."""

    def now(self) -> float:
        """Seconds since an arbitrary fixed origin; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        ...


class MonotonicClock:
    """The operating system's monotonic clock."""

    def now(self) -> float:
        """Seconds of ``time.monotonic``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for ``seconds`` (none when negative)."""
        if seconds > 0:
            time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """The time that was last set."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance by ``seconds`` without waiting."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds`` >= 0."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {seconds} s")
        self._now += seconds
