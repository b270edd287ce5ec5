"""Row ids kept dense and in groups: exact sizes, drawing and removing in constant time a row, a block at a time.

Each slot of the ring remembers where its row stands in its group's array. A row is taken out by moving the group's last
row into its place, so the order inside a group says nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_SMALLEST = 64


class _Group:
    """One growing array of ids, of which the first ``size`` count."""

    def __init__(self) -> None:
        self.ids: Array = np.empty(_SMALLEST, np.int64)
        self.size = 0

    def resize(self, size: int) -> None:
        """Make room for ``size`` ids, and give back what is far too much; keeps the ids in front."""
        if size > len(self.ids) or size < len(self.ids) // 4:
            fresh = np.empty(max(_SMALLEST, size + size // 2), np.int64)
            kept = min(size, self.size)
            fresh[:kept] = self.ids[:kept]
            self.ids = fresh
        self.size = size


class DenseRows:
    """Ids of live rows of one ring, in groups with integer keys; a row is in one group at most.

    Args:
        slots: slots of the ring; rows that are in here at one time have different slots.
        grouped: whether keys are used; without them all rows are in group 0.
    """

    def __init__(self, slots: int, grouped: bool = False) -> None:
        self._slots = slots
        # Position + 1, so that 0 means "not in here" and untouched pages stay unmapped.
        self._place: Array = np.zeros(slots, np.int32 if slots < 1 << 31 else np.int64)
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
        columns = self._place.nbytes + (0 if self._keys is None else self._keys.nbytes)
        return columns + sum(group.ids.nbytes for group in self._groups.values())

    def clear(self) -> None:
        """Forget everything."""
        self._place = np.zeros_like(self._place)
        self._groups.clear()
        self._size = 0

    def group(self, key: int = 0) -> Array:
        """``(n,)`` int64 ids of a group, in no particular order; a view that the next change makes void."""
        group = self._groups.get(key)
        return np.empty(0, np.int64) if group is None else group.ids[: group.size]

    def contains(self, ids: Array) -> Array:
        """``(n,)`` bool: which of the live rows ``ids`` are in here."""
        inside: Array = self._place[ids % self._slots] > 0
        return inside

    def sizes_without(self, ids: Array) -> dict[int, int]:
        """Key -> rows of each group that holds rows, the distinct live rows ``ids`` not counted."""
        sizes = {key: group.size for key, group in self._groups.items()}
        if len(ids):
            slots = ids % self._slots
            inside = slots[self._place[slots] > 0]
            for key, part in self._by_key(inside, inside):
                sizes[key] -= len(part)
        return sizes

    def positions(self, ids: Array, key: int = 0) -> Array:
        """Ascending positions in :meth:`group` of those of the live rows ``ids`` that are in that group."""
        slots = ids % self._slots
        places = self._place[slots]
        inside = places > 0
        if self._keys is not None:
            inside &= self._keys[slots] == key
        found: Array = np.sort(places[inside]) - 1
        return found

    def label(self, ids: Array, keys: Array) -> None:
        """Say in which groups the ``ids``, none of which is in here, are to be put: ``(n,)`` uint32."""
        if self._keys is not None:
            self._keys[ids % self._slots] = keys

    def add(self, ids: Array) -> None:
        """Put in the distinct ``ids``, ``(n,)`` int64, none of which is in here."""
        for key, part in self._by_key(ids, ids % self._slots):
            group = self._groups.setdefault(key, _Group())
            old = group.size
            group.resize(old + len(part))
            group.ids[old : group.size] = part
            self._place[part % self._slots] = np.arange(old + 1, group.size + 1)
        self._size += len(ids)

    def remove(self, ids: Array) -> None:
        """Take out those of the distinct ``ids`` that are in here."""
        slots = ids % self._slots
        inside = self._place[slots] > 0
        if not inside.all():
            slots = slots[inside]
        for key, part in self._by_key(slots, slots):
            self._take_out(key, part)
        self._size -= len(slots)

    def _take_out(self, key: int, slots: Array) -> None:
        group = self._groups[key]
        size = group.size - len(slots)
        places = self._place[slots]
        self._place[slots] = 0
        last = group.ids[size : group.size]
        movers = last[self._place[last % self._slots] > 0]
        holes = places[places <= size] - 1
        group.ids[holes] = movers
        self._place[movers % self._slots] = holes + 1
        if size:
            group.resize(size)
        else:
            del self._groups[key]

    def _by_key(self, values: Array, slots: Array) -> list[tuple[int, Array]]:
        """``values`` by the keys of their slots; a block nearly always has one key only."""
        if not len(values):
            return []
        if self._keys is None:
            return [(0, values)]
        keys = self._keys[slots]
        if (keys == keys[0]).all():
            return [(int(keys[0]), values)]
        return [(int(key), values[keys == key]) for key in np.unique(keys)]

    def check_valid(self) -> tuple[bool, str]:
        """Whether arrays and positions say the same."""
        if sum(g.size for g in self._groups.values()) != self._size or np.count_nonzero(self._place) != self._size:
            return False, f"{np.count_nonzero(self._place)} places and {self._size} rows"
        for key, group in self._groups.items():
            slots = group.ids[: group.size] % self._slots
            if not np.array_equal(self._place[slots], np.arange(1, group.size + 1)):
                return False, f"group {key}: rows and places disagree"
            if self._keys is not None and (self._keys[slots] != key).any():
                return False, f"group {key}: holds a row of another group"
        return True, ""
