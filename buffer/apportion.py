"""Whole rows out of fractions: how many rows of a batch each set, and each task of a set, is drawn. Pure decisions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence


def largest_remainder(wanted: Sequence[float], total: int) -> list[int]:
    """Whole numbers >= 0 that add up to ``total`` and are as near to ``wanted`` (which add up to it too) as can be."""
    counts = [max(0, int(w // 1)) for w in wanted]
    while (missing := total - sum(counts)) != 0:
        step = 1 if missing > 0 else -1
        able = [i for i, c in enumerate(counts) if step > 0 or c > 0]
        counts[max(able, key=lambda i: (step * (wanted[i] - counts[i]), -i))] += step
    return counts


class Shares:
    """Divides batch after batch by fixed shares; what a batch is off is carried, so that long runs are exact.

    Args:
        shares: parts >= 0 that add up to 1.
    """

    def __init__(self, shares: Sequence[float]) -> None:
        self.shares = tuple(shares)
        self._carry = [0.0] * len(self.shares)

    def peek(self, total: int) -> list[int]:
        """Rows of the next batch for each share."""
        return largest_remainder([s * total + c for s, c in zip(self.shares, self._carry, strict=True)], total)

    def take(self, counts: Sequence[int]) -> None:
        """The batch that :meth:`peek` divided into ``counts`` was drawn."""
        total = sum(counts)
        self._carry = [c + s * total - n for c, s, n in zip(self._carry, self.shares, counts, strict=True)]

    def get_state(self) -> list[float]:
        """What is carried, in rows."""
        return list(self._carry)

    def set_state(self, state: Sequence[float]) -> None:
        """Restore :meth:`get_state`."""
        self._carry = [float(c) for c in state]

    def check_valid(self) -> tuple[bool, str]:
        """Whether the carry is one value a share, adds up to nothing, and is small."""
        off = len(self._carry) != len(self.shares) or abs(sum(self._carry)) > 1e-3
        if off or any(abs(c) > len(self.shares) for c in self._carry):
            return False, f"{self._carry} rows are carried for the shares {self.shares}"
        return True, ""


class Turns:
    """Divides rows equally among keys that come and go; the remainder goes round, beginning after the key served last."""

    def __init__(self) -> None:
        self._last = -1

    def divide(self, total: int, room: Mapping[int, int]) -> dict[int, int]:
        """Rows for each key of ``room``, at most what there is room for, as equal as that allows.

        Args:
            total: rows to divide, at most all the room.
            room: key >= 0 -> most rows.
        """
        keys = sorted(room)
        start = bisect_right(keys, self._last)
        order = [key for key in keys[start:] + keys[:start] if room[key]]
        counts = dict.fromkeys(keys, 0)
        while total > 0 and order:
            each, rest = divmod(total, len(order))
            if not each:
                for key in order[:rest]:
                    counts[key] += 1
                self._last = order[rest - 1]
                break
            for key in order:
                given = min(each, room[key] - counts[key])
                counts[key] += given
                total -= given
            order = [key for key in order if counts[key] < room[key]]
        return counts

    def get_state(self) -> int:
        """The key served last; -1 at first."""
        return self._last

    def set_state(self, state: int) -> None:
        """Restore :meth:`get_state`."""
        self._last = int(state)
