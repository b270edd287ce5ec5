"""How fast blocks may leave: a balance in bytes that time fills and each block lowers, below zero for once."""

from __future__ import annotations

SAVED_S = 0.25  # of the rate, so that a pause is not followed by a burst


class ByteRate:
    """Holds a stream of blocks to so many bytes a second, in the mean of a second or so.

    Args:
        bytes_per_s: the rate; 0 lets everything pass.
        now: the time.
    """

    def __init__(self, bytes_per_s: float, now: float) -> None:
        self._rate, self._balance, self._at = bytes_per_s, 0.0, now

    def is_open(self, now: float) -> bool:
        """Whether the next block may leave now, whatever its size."""
        if self._rate == 0:
            return True
        self._balance = min(self._rate * SAVED_S, self._balance + self._rate * (now - self._at))
        self._at = now
        return self._balance >= 0

    def spend(self, nbytes: int) -> None:
        """A block of so many bytes has left."""
        self._balance -= nbytes
