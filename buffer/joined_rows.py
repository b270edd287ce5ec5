"""The members of one set in two segments as one: what a draw from the set asks, without a copy of either's ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.buffer.ordered_rows import OrderedRows
from headrace.common.batch import PINNED

Array = np.ndarray[Any, Any]


class JoinedIds:
    """Ascending ids of two arrays, taken by position as those of one."""

    def __init__(self, first: Array, second: Array) -> None:
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __getitem__(self, places: Array) -> Array:
        """``(n,)`` ids at ``places``, ``(n,)`` of 0 .. len - 1."""
        out = np.empty(len(places), np.int64)
        behind = places >= len(self._first)
        out[~behind] = self._first[places[~behind]]
        out[behind] = self._second[places[behind] - len(self._first)]
        return out


class JoinedRows:
    """The rows of a set in the ring and among the pinned demonstrations, with the questions of :class:`OrderedRows`.

    Args:
        online: ids of rows of the ring.
        pinned: handles of pinned rows.
    """

    def __init__(self, online: OrderedRows, pinned: OrderedRows) -> None:
        self._online, self._pinned = online, pinned

    def __len__(self) -> int:
        return len(self._online) + len(self._pinned)

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._online.nbytes + self._pinned.nbytes

    def group(self, key: int = 0) -> JoinedIds:
        """As :meth:`OrderedRows.group`."""
        return JoinedIds(self._online.group(key), self._pinned.group(key))

    def sizes_without(self, ids: Array) -> dict[int, int]:
        """As :meth:`OrderedRows.sizes_without`, of ascending ``ids``."""
        online, pinned = _split(ids)
        sizes = self._online.sizes_without(online)
        for key, size in self._pinned.sizes_without(pinned).items():
            sizes[key] = sizes.get(key, 0) + size
        return sizes

    def positions(self, ids: Array, key: int = 0) -> Array:
        """As :meth:`OrderedRows.positions`."""
        online, pinned = _split(ids)
        behind = self._pinned.positions(pinned, key) + len(self._online.group(key))
        return np.concatenate([self._online.positions(online, key), behind])


def _split(ids: Array) -> tuple[Array, Array]:
    """Ascending ids of the ring, and of the pinned segment."""
    cut = int(np.searchsorted(ids, PINNED))
    return ids[:cut], ids[cut:]
