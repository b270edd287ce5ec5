"""Which live rows acted with one of the newest K weight versions, as versions come and go.

The versions of one learner are ordered by (epoch, step), and the newest K are those among the live rows; each learner has
its own. Rows that acted without weights are never recent. A version leaves when K newer ones have come, and comes back when
the last row of a newer one has gone, so what is recent follows from the live rows alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_FIELDS = ("learner", "learner_epoch", "learner_step")


@dataclass
class _Seen:
    """One version that live rows hold: its number, how many rows, and the ids between which they lie."""

    number: int
    order: tuple[int, int]
    learner: int
    count: int
    first: int
    last: int


class RecentVersions:
    """Follows commits and retirements; says which rows changed sides.

    Args:
        slots: slots of the ring.
        newest: K.
    """

    def __init__(self, slots: int, newest: int) -> None:
        self._slots, self._newest = slots, newest
        self.clear()

    @property
    def nbytes(self) -> int:
        """Bytes reserved for the column."""
        return self._column.nbytes

    def clear(self) -> None:
        """Forget everything."""
        self._column: Array = np.zeros(self._slots, np.uint32)  # number of the version of each row; 0 is none
        self._seen: dict[int, _Seen] = {}
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._orders: dict[int, list[tuple[tuple[int, int], int]]] = {}
        self._recent: set[int] = set()
        self._next = 1

    def __contains__(self, number: int) -> bool:
        return number in self._recent

    def recent(self, ids: Array) -> Array:
        """``(n,)`` bool: which of the live rows ``ids`` are recent."""
        numbers = self._column[ids % self._slots]
        out: Array = np.isin(numbers, np.fromiter(self._recent, np.uint32, len(self._recent)))
        return out

    def committed(self, first: int, rows: Array) -> Array:
        """Take in rows ``first ..``; ascending ids of older rows that are no longer recent."""
        left: list[Array] = []
        for version, offsets in _by_version(rows):
            learner, *order = version
            number = self._numbers.get(version) or self._number(version)
            self._column[(first + offsets) % self._slots] = number
            low, high = first + int(offsets[0]), first + int(offsets[-1])
            seen = self._seen.get(number)
            if seen is not None:
                seen.count += len(offsets)
                seen.last = high
                continue
            self._seen[number] = _Seen(number, (order[0], order[1]), learner, len(offsets), low, high)
            pushed_out = self._enter(self._seen[number])
            if pushed_out is not None:
                left.append(self._rows_of(pushed_out, first))
        self._column[(first + np.flatnonzero(rows["learner_epoch"] == 0)) % self._slots] = 0
        return np.sort(np.concatenate(left)) if left else np.empty(0, np.int64)

    def retired(self, tail: int, ids: Array) -> Array:
        """Let rows ``ids`` below ``tail`` go; ascending ids of rows that are recent again."""
        entered: list[Array] = []
        numbers, counts = np.unique(self._column[ids % self._slots], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number == 0:
                continue
            seen = self._seen[number]
            seen.count -= count
            seen.first = max(seen.first, tail)
            if seen.count == 0:
                back = self._leave(seen)
                if back is not None:
                    entered.append(self._rows_of(back, back.last + 1, tail))
        return np.sort(np.concatenate(entered)) if entered else np.empty(0, np.int64)

    def _number(self, version: tuple[int, int, int]) -> int:
        self._numbers[version] = self._next
        self._next += 1
        return self._numbers[version]

    def _enter(self, seen: _Seen) -> _Seen | None:
        """Order a new version; the one that it pushes out of the newest K."""
        orders = self._orders.setdefault(seen.learner, [])
        insort(orders, (seen.order, seen.number))
        edge = len(orders) - self._newest
        if (seen.order, seen.number) >= orders[max(0, edge)]:
            self._recent.add(seen.number)
        if edge < 1 or (out := orders[edge - 1][1]) not in self._recent:
            return None
        self._recent.remove(out)
        return self._seen[out]

    def _leave(self, seen: _Seen) -> _Seen | None:
        """Forget a version without rows; the one that comes back among the newest K."""
        orders = self._orders[seen.learner]
        del orders[bisect_left(orders, (seen.order, seen.number))]
        del self._seen[seen.number], self._numbers[(seen.learner, *seen.order)]
        if not orders:
            del self._orders[seen.learner]
        if seen.number not in self._recent:
            return None
        self._recent.remove(seen.number)
        edge = len(orders) - self._newest
        if edge < 0:
            return None
        self._recent.add(orders[edge][1])
        return self._seen[orders[edge][1]]

    def _rows_of(self, seen: _Seen, stop: int, start: int = 0) -> Array:
        """Ids below ``stop`` of the rows of one version."""
        ids = np.arange(max(seen.first, start), min(stop, seen.last + 1))
        out: Array = ids[self._column[ids % self._slots] == seen.number]
        return out

    def check_valid(self) -> tuple[bool, str]:
        """Whether the newest K of each learner, and only they, are recent."""
        want = {number for orders in self._orders.values() for _, number in orders[-self._newest :]}
        if want != self._recent:
            return False, f"versions {sorted(self._recent)} are taken for recent, the newest are {sorted(want)}"
        bad = [seen.number for seen in self._seen.values() if seen.count < 1 or seen.first > seen.last]
        return not bad, f"versions {bad} have no rows" if bad else ""


def _by_version(rows: Array) -> list[tuple[tuple[int, int, int], Array]]:
    """(learner, epoch, step) -> positions in ``rows``, ascending; a block nearly always has one version."""
    columns = [rows[name] for name in _FIELDS]
    if all((column == column[0]).all() for column in columns):
        groups = [np.arange(len(rows))]
    else:
        stacked = np.stack([column.astype(np.uint64) for column in columns], axis=1)
        _, where = np.unique(stacked, axis=0, return_inverse=True)
        groups = [np.flatnonzero(where.ravel() == i) for i in range(int(where.max()) + 1)]
    out = []
    for group in groups:
        learner, epoch, step = (int(column[group[0]]) for column in columns)
        if epoch:
            out.append(((learner, epoch, step), group))
    return out
