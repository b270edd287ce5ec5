"""Row ids in ascending order and in groups: exact sizes, draws by position in constant time, whole blocks in and out.

The order makes a group the same however its rows came and went, so a pool that was loaded or opened again draws what the one
before would have drawn. It costs nothing for rows that come in at the end and leave at the front; a change in the middle
moves the ids between there and the nearer end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_SMALLEST = 64


class _Group:
    """Ascending ids, which begin and end somewhere inside a larger array."""

    def __init__(self) -> None:
        self._array: Array = np.empty(_SMALLEST, np.int64)
        self._low = self._high = 0

    def __len__(self) -> int:
        return self._high - self._low

    @property
    def ids(self) -> Array:
        """A view of them."""
        return self._array[self._low : self._high]

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._array.nbytes

    def add(self, new: Array) -> None:
        """Put in ascending ids, none of which is here."""
        self._make_room(len(new))
        first = self._low + int(np.searchsorted(self.ids, new[0]))
        moved = self._array[first : self._high].copy()
        self._high += len(new)
        self._array[first : self._high] = np.sort(np.concatenate([moved, new])) if len(moved) else new

    def remove(self, old: Array) -> None:
        """Take out ascending ids, all of which are here."""
        ids, n = self.ids, len(old)
        first, last = np.searchsorted(ids, old[[0, -1]]).tolist()
        if first < len(ids) - 1 - last:  # nearer to the front: what is kept of it moves up
            kept = np.delete(ids[: last + 1], np.searchsorted(ids, old))
            ids[n : last + 1] = kept
            self._low += n
        else:
            kept = np.delete(ids[first:], np.searchsorted(ids, old) - first)
            ids[first : first + len(kept)] = kept
            self._high -= n

    def _make_room(self, more: int) -> None:
        """Have place for ``more`` ids at the end, in an array of a size that fits."""
        size = len(self) + more
        if self._high + more > len(self._array) or 8 * size < len(self._array) > _SMALLEST:
            fresh: Array = np.empty(max(_SMALLEST, 2 * size), np.int64)
            fresh[: len(self)] = self.ids
            self._array, self._low, self._high = fresh, 0, len(self)


class OrderedRows:
    """Ids of live rows of one ring, in groups with integer keys; a row is in one group at most.

    Args:
        slots: slots of the ring; rows that are in here at one time have different slots.
        grouped: whether keys are used; without them all rows are in group 0.
    """

    def __init__(self, slots: int, grouped: bool = False) -> None:
        self._slots = slots
        self._inside: Array = np.zeros(slots, bool)
        self._keys: Array | None = np.zeros(slots, np.uint32) if grouped else None
        self._groups: dict[int, _Group] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def keys(self) -> list[int]:
        """Keys of the groups that hold rows."""
        return list(self._groups)

    @property
    def nbytes(self) -> int:
        """Bytes reserved; pages of it that no row ever used are not in memory."""
        columns = self._inside.nbytes + (0 if self._keys is None else self._keys.nbytes)
        return columns + sum(group.nbytes for group in self._groups.values())

    def clear(self) -> None:
        """Forget everything."""
        self._inside = np.zeros_like(self._inside)
        self._groups.clear()
        self._size = 0

    def group(self, key: int = 0) -> Array:
        """``(n,)`` int64 ids of a group, ascending; a view that the next change makes void."""
        group = self._groups.get(key)
        return np.empty(0, np.int64) if group is None else group.ids

    def contains(self, ids: Array) -> Array:
        """``(n,)`` bool: which of the live rows ``ids`` are in here."""
        inside: Array = self._inside[ids % self._slots]
        return inside

    def sizes_without(self, ids: Array) -> dict[int, int]:
        """Key -> rows of each group that holds rows, the distinct live rows ``ids`` not counted."""
        sizes = {key: len(group) for key, group in self._groups.items()}
        if len(ids):
            for key, part in self._by_key(ids[self.contains(ids)]):
                sizes[key] -= len(part)
        return sizes

    def positions(self, ids: Array, key: int = 0) -> Array:
        """Ascending positions in :meth:`group` of those of the ascending live rows ``ids`` that are in that group."""
        slots = ids % self._slots
        inside = self._inside[slots]
        if self._keys is not None:
            inside &= self._keys[slots] == key
        found: Array = np.searchsorted(self.group(key), ids[inside])
        return found

    def label(self, ids: Array, keys: Array) -> None:
        """Say in which groups the ``ids``, none of which is in here, are to be put: ``(n,)`` uint32."""
        if self._keys is not None:
            self._keys[ids % self._slots] = keys

    def add(self, ids: Array) -> None:
        """Put in the ascending ``ids``, ``(n,)`` int64, none of which is in here."""
        for key, part in self._by_key(ids):
            self._groups.setdefault(key, _Group()).add(part)
        self._inside[ids % self._slots] = True
        self._size += len(ids)

    def remove(self, ids: Array) -> None:
        """Take out those of the ascending ``ids`` that are in here."""
        ids = ids[self.contains(ids)]
        for key, part in self._by_key(ids):
            group = self._groups[key]
            group.remove(part)
            if not len(group):
                del self._groups[key]
        self._inside[ids % self._slots] = False
        self._size -= len(ids)

    def _by_key(self, ids: Array) -> list[tuple[int, Array]]:
        """``ids`` by key; a block nearly always has one only."""
        if not len(ids):
            return []
        if self._keys is None:
            return [(0, ids)]
        keys = self._keys[ids % self._slots]
        if (keys == keys[0]).all():
            return [(int(keys[0]), ids)]
        return [(int(key), ids[keys == key]) for key in np.unique(keys)]

    def check_valid(self) -> tuple[bool, str]:
        """Whether groups are in order, and slots and groups say the same."""
        if sum(map(len, self._groups.values())) != self._size or np.count_nonzero(self._inside) != self._size:
            return False, f"{np.count_nonzero(self._inside)} slots and {self._size} rows"
        for key, group in self._groups.items():
            slots = group.ids % self._slots
            if (np.diff(group.ids) <= 0).any() or not self._inside[slots].all():
                return False, f"group {key}: ids out of order, or not said to be in here"
            if self._keys is not None and (self._keys[slots] != key).any():
                return False, f"group {key}: holds a row of another group"
        return True, ""
