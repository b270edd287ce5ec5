"""An index that keeps a plain copy of what it was told, and refuses calls that do not follow one another."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.buffer import SACReplayPool

Array = np.ndarray[Any, Any]


class Mirror:
    """id -> row bytes of every live row, and the ids that were discarded."""

    reads_rows = True

    def __init__(self) -> None:
        self.rows: dict[int, bytes] = {}
        self.dead: set[int] = set()
        self.head = 0
        self.tail = 0
        self.largest = 0  # rows in one call

    def cleared(self) -> None:
        self.rows, self.dead, self.head, self.tail = {}, set(), 0, 0

    def committed(self, first: int, rows: Array) -> None:
        assert len(rows)
        assert not self.head or first == self.head
        if not self.head:
            self.tail = first
        for i, row in enumerate(rows):
            self.rows[first + i] = row.tobytes()
        self.head = first + len(rows)
        self.largest = max(self.largest, len(rows))

    def retired(self, tail: int) -> None:
        assert tail > self.tail
        self.tail = tail
        self.rows = {i: row for i, row in self.rows.items() if i >= tail}
        self.dead = {i for i in self.dead if i >= tail}

    def amended(self, ids: Array, rows: Array) -> None:
        assert len(ids) == len(rows) > 0
        assert (np.diff(ids) > 0).all()
        for i, row in zip(ids.tolist(), rows, strict=True):
            assert self.rows[i] != row.tobytes()
            self.rows[i] = row.tobytes()

    def discarded(self, ids: Array) -> None:
        assert len(ids)
        new = set(ids.tolist())
        assert new <= set(self.rows)
        assert not new & self.dead
        self.dead |= new

    def check_valid(self) -> tuple[bool, str]:
        return set(self.rows) >= self.dead, "a row is discarded that is not live"


def attach(pool: SACReplayPool) -> Mirror:
    """A mirror that follows ``pool`` from now on."""
    mirror = Mirror()
    assert pool._store is not None
    pool._store.attach(mirror)
    return mirror


def agree(mirror: Mirror, pool: SACReplayPool) -> None:
    """Fail unless the mirror holds exactly what the pool holds."""
    assert mirror.check_valid()[0]
    rows = pool.gather(np.arange(pool.tail, pool.head)).rows if pool.size else []
    assert mirror.rows == {pool.tail + i: row.tobytes() for i, row in enumerate(rows)}
