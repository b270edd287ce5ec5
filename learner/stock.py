"""A stock: rows of one shard that were drawn ahead, and of which batches take as many as their share is. Pure decisions.

A shard sends chunks of distinct rows, each a uniform draw by itself. A batch's part begins where the one before ended, and goes
on in the next chunk without the rows that it has already: so each part is a draw of distinct rows too.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from headrace.common.batch import Batch

Array = np.ndarray[Any, Any]


class Stock:
    """Rows of one shard for the batches of one kind.

    Attributes:
        epoch: the pool's in which the rows in hand were drawn.
    """

    def __init__(self) -> None:
        self._chunks: deque[Batch] = deque()
        self._hand: list[Batch] = []  # of the next batch's part
        self.epoch = 0

    def put(self, chunk: Batch) -> None:
        """A chunk has come."""
        self._chunks.append(chunk)

    @property
    def held(self) -> int:
        """Rows in hand."""
        return sum(map(len, self._hand))

    def fill(self, rows: int) -> bool:
        """Take rows in hand until there are so many; whether there are."""
        while (missing := rows - self.held) > 0 and self._chunks:
            chunk = self._chunks.popleft()
            if self._hand and chunk.epoch != self.epoch:
                self._hand.clear()  # the shard was started again: ids of two epochs cannot be rated together
                missing = rows
            self.epoch = chunk.epoch
            fresh = self._fresh(chunk)
            self._hand.append(fresh[:missing])
            if len(fresh) > missing:
                self._chunks.appendleft(fresh[missing:])
        return self.held >= rows

    def _fresh(self, chunk: Batch) -> Batch:
        """The rows of a chunk that are not in hand; all where a draw may have rows twice, as those of sets and by priority."""
        if not self._hand or chunk.sets is not None or chunk.weights is not None:
            return chunk
        return chunk[~np.isin(chunk.ids, np.concatenate([piece.ids for piece in self._hand]))]

    def take(self, rows: int) -> list[Batch]:
        """So many rows in hand, in one or several pieces; what is beyond them is for the next batch."""
        out: list[Batch] = []
        while rows > 0:
            piece = self._hand.pop(0)
            if len(piece) > rows:
                self._hand.insert(0, piece[rows:])
                piece = piece[:rows]
            out.append(piece)
            rows -= len(piece)
        for rest in reversed(self._hand):
            self._chunks.appendleft(rest)
        self._hand.clear()
        return out
