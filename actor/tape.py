"""A tape: arrays that grow at the end and forget at the start, addressed by ids that never change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from headrace.common.errors import EnvError

Array = np.ndarray[Any, Any]
START = 64


class Tape:
    """Columns of one length. Entry ``id`` is stored from its :meth:`append` until it is forgotten.

    Args:
        columns: name -> (shape of one entry, dtype).
        limit: most entries kept at once.
    """

    def __init__(self, columns: Mapping[str, tuple[tuple[int, ...], Any]], limit: int) -> None:
        self.start = 0
        self.end = 0
        self._limit = limit
        self._base = 0  # the id in slot 0
        self._columns = {name: np.zeros((min(START, limit), *shape), dtype) for name, (shape, dtype) in columns.items()}
        self._arrays = tuple(self._columns.values())

    def append(self, values: Iterable[Any]) -> int:
        """Copy one value a column, in the columns' order; returns the entry's id.

        Raises:
            EnvError: ``limit`` entries are kept already.
        """
        slot = self.end - self._base
        if slot == len(self._arrays[0]):
            slot = self._make_room()
        for array, value in zip(self._arrays, values, strict=True):
            array[slot] = value
        self.end += 1
        return self.end - 1

    def column(self, name: str, ids: Any) -> Array:
        """The entries ``ids`` (an integer array) of one column, copied."""
        return np.asarray(self._columns[name][ids - self._base])

    def write(self, name: str, start: int, stop: int, value: Any) -> None:
        """Overwrite the entries ``start`` to ``stop - 1`` of one column."""
        self._columns[name][start - self._base : stop - self._base] = value

    def forget(self, before: int) -> None:
        """Give up the entries before id ``before``."""
        self.start = max(self.start, before)

    def get_state(self) -> dict[str, Any]:
        """Copies of all that is kept."""
        kept = slice(self.start - self._base, self.end - self._base)
        return {"start": self.start, "end": self.end, **{f"column.{n}": a[kept].copy() for n, a in self._columns.items()}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`get_state`."""
        self.start = self._base = int(state["start"])
        self.end = int(state["end"])
        count = self.end - self.start
        for name, array in self._columns.items():
            grown = np.zeros((max(len(array), count), *array.shape[1:]), array.dtype)
            grown[:count] = state[f"column.{name}"]
            self._columns[name] = grown
        self._arrays = tuple(self._columns.values())

    def _make_room(self) -> int:
        """Move what is kept to the front, into larger arrays when it fills more than half; returns the free slot."""
        kept = slice(self.start - self._base, self.end - self._base)
        count, size = kept.stop - kept.start, len(self._arrays[0])
        if count >= self._limit:
            raise EnvError(f"{count} entries wait to be taken, allowed {self._limit}: take() the blocks that are ready")
        if 2 * count > size:
            size = min(2 * size, self._limit)
        for name, array in self._columns.items():
            moved = np.empty((size, *array.shape[1:]), array.dtype)
            moved[:count] = array[kept]
            self._columns[name] = moved
        self._arrays = tuple(self._columns.values())
        self._base = self.start
        return count
