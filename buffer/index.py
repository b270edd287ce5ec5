"""Indexes: what is derived from rows and kept in step with every commit, such as priorities and named sets.

An index holds nothing that rows and their mutable columns do not say, so it is never saved: the store clears it and feeds it
the live rows again at open and after a load, in the same calls as when they came in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Index(Protocol):
    """Follows the rows of one store; every call is made under the pool's lock, in the order in which things happen.

    Attributes:
        reads_rows: whether :meth:`committed` looks at what the rows hold, and not only at how many there are.
    """

    reads_rows: bool

    def cleared(self) -> None:
        """Nothing is live any more; the next rows may have any ids."""

    def committed(self, first: int, rows: Array) -> None:
        """Rows ``first ..`` are live now: ``(n,)`` of the row dtype, ids only grow.

        If rows are read, identity and mutable columns are filled in.
        """

    def retired(self, tail: int) -> None:
        """Rows with ids below ``tail`` are gone; their slots and frames were not written over yet."""

    def amended(self, ids: Array, rows: Array) -> None:
        """The live rows ``ids``, ``(n,)`` int64 ascending, hold ``rows`` now."""

    def discarded(self, ids: Array) -> None:
        """The live rows ``ids``, ``(n,)`` int64 ascending, must never be sampled again; each is named once."""

    def check_valid(self) -> tuple[bool, str]:
        """Whether the index agrees with itself."""


class Indexes:
    """All indexes of one store, as one."""

    def __init__(self) -> None:
        self._all: list[Index] = []
        self.reads_rows = False  # whether any of them does

    def add(self, index: Index) -> None:
        """Follow with one more, which was fed what is live."""
        self._all.append(index)
        self.reads_rows |= index.reads_rows

    def __iter__(self) -> Iterator[Index]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def cleared(self) -> None:
        """Forward to each."""
        for index in self._all:
            index.cleared()

    def committed(self, first: int, rows: Array) -> None:
        """Forward to each."""
        for index in self._all:
            index.committed(first, rows)

    def retired(self, tail: int) -> None:
        """Forward to each."""
        for index in self._all:
            index.retired(tail)

    def amended(self, ids: Array, rows: Array) -> None:
        """Forward to each."""
        for index in self._all:
            index.amended(ids, rows)

    def discarded(self, ids: Array) -> None:
        """Forward to each."""
        for index in self._all:
            index.discarded(ids)

    def check_valid(self) -> tuple[bool, str]:
        """The first complaint, if there is one."""
        for index in self._all:
            valid, why = index.check_valid()
            if not valid:
                return valid, why
        return True, ""
