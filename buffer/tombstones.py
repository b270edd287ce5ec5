"""Which live rows were discarded, so that samplers can step over them. An index of sorted ids, 8 bytes each."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Tombstones:
    """Ids of the discarded rows that are still in the ring."""

    def __init__(self) -> None:
        self.cleared()

    def __len__(self) -> int:
        return len(self._ids) - self._gone

    def cleared(self) -> None:
        """Nothing is live any more."""
        self._set(np.empty(0, np.int64))

    def committed(self, first: int, rows: Array) -> None:
        """New rows are never discarded yet."""

    def amended(self, ids: Array, rows: Array) -> None:
        """What rows hold does not matter here."""

    def retired(self, tail: int) -> None:
        """Forget the ids below ``tail``."""
        if len(self):
            self._gone += int(np.searchsorted(self._live, tail))

    def discarded(self, ids: Array) -> None:
        """Note ``ids``, none of which is here already."""
        self._set(np.insert(self._live, np.searchsorted(self._live, ids), ids))

    def within(self, start: int, stop: int) -> Array:
        """The discarded ids of ``[start, stop)``, ascending."""
        low, high = np.searchsorted(self._live, (start, stop))
        ids: Array = self._live[low:high]
        return ids

    def step_over(self, ids: Array) -> Array:
        """Turn draws from the rows that may be sampled into ids of such rows.

        Draw r becomes the r-th row that is not discarded, so draws that are uniform and distinct stay so, at the cost of
        one search each, however many rows are discarded.

        Args:
            ids: ``(B,)`` int64, each the tail + r with 0 <= r < live rows that are not discarded.
        """
        if not len(self):
            return ids
        out: Array = ids + np.searchsorted(self._ranks[self._gone :], ids - self._gone, side="right")
        return out

    def check_valid(self) -> tuple[bool, str]:
        """Whether the ids ascend."""
        return bool((np.diff(self._live) > 0).all()), "discarded ids are out of order"

    @property
    def _live(self) -> Array:
        live: Array = self._ids[self._gone :]  # those before were forgotten, without moving the others
        return live

    def _set(self, ids: Array) -> None:
        # A discarded row hides as many draws behind it as there are discarded rows up to it.
        self._ids, self._ranks, self._gone = ids, ids - np.arange(len(ids)), 0
