"""The row clock: when rows were committed, told from how many there were at moments of the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_MARKS = 1024


class RowClock:
    """Remembers how many rows had been committed at some moments; between two of them rows came evenly.

    Of rows that were there before the first moment nobody knows more than that, so their age is at least the one since then.
    The marks are bounded: when there are too many every second one is forgotten.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []

    def note(self, rows: int, now: float) -> None:
        """``rows`` rows, counted as ids are, have been committed up to ``now`` (s)."""
        marks = self._marks
        if marks and rows < marks[-1][0]:
            marks.clear()  # the pool went back to an older snapshot
        if len(marks) > 1 and marks[-2][0] == rows:
            marks.pop()  # a pause has a beginning and an end
        marks.append((rows, now))
        if len(marks) > MOST_MARKS:
            del marks[1:-1:2]

    def age(self, ids: Array, now: float) -> Array:
        """Seconds since each of the rows ``ids``, ``(n,)`` int64 of the ring, was committed, ``(n,)`` float64."""
        if not self._marks:
            return np.zeros(len(ids))
        rows, times = np.array(self._marks).T
        age: Array = np.maximum(0.0, now - np.interp(ids + 0.5, rows, times))
        return age

    def get_state(self) -> dict[str, Any]:
        """The marks."""
        return {"marks": list(self._marks)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state` of a clock with the same time."""
        self._marks = [(int(rows), float(now)) for rows, now in state["marks"]]

    def check_valid(self) -> tuple[bool, str]:
        """Whether neither rows nor time ever went back."""
        for before, after in zip(self._marks, self._marks[1:], strict=False):
            if after[0] < before[0] or after[1] < before[1]:
                return False, f"mark {after} is behind {before}"
        return True, ""
