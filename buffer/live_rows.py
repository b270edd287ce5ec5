"""The live rows of a segment, a bounded number at a time, and what is made of them anew: tombstones and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.buffer.index import Index
from headrace.buffer.segment import Segment
from headrace.buffer.tombstones import Tombstones

Array = np.ndarray[Any, Any]
COPY_ROWS = 4096


def rows_from(segment: Segment, start: int) -> Iterator[Array]:
    """Copies of the live rows from ``start`` on."""
    head = segment.head
    for low in range(start, head, COPY_ROWS):
        yield segment.rows(low, min(low + COPY_ROWS, head))


def feed(index: Index, segment: Segment, tombstones: Tombstones) -> None:
    """Clear ``index`` and tell it of the live rows as when they came in."""
    index.cleared()
    first = segment.tail
    for rows in rows_from(segment, first):
        index.committed(first, rows)
        if len(dead := tombstones.within(first, first + len(rows))):
            index.discarded(dead)
        first += len(rows)


def bury(tombstones: Tombstones, segment: Segment) -> None:
    """Clear ``tombstones`` and read which live rows are discarded."""
    tombstones.cleared()
    head = segment.head
    for low in range(segment.tail, head, COPY_ROWS):
        discarded = segment.column("discarded", low, min(low + COPY_ROWS, head))
        if discarded.any():
            tombstones.discarded(low + np.flatnonzero(discarded))
