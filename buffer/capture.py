"""A capture: the state of a store at one instant, whose rows and frames are read afterwards, while inserts go on.

Ledger, counters and statistics are copied at once, under the pool's lock. Live rows follow oldest first in bounded pieces with
the frames that they need, without the lock: a commit writes no slot of a row at or above the tail, so a piece whose first row
is still live when its copy is done is whole (see fence.py). Where the tail has overtaken the copy, everything copied so far is
older than any live row: the capture begins again at the tail, under the lock, and holds the rows that are left. What a label
changes meanwhile is noted before it changes and put back into the copy, so that no label is there in half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.buffer.fence import Fence
from headrace.buffer.files import LEDGER_TABLE, ROWS, column_file, frame_file
from headrace.buffer.header import Field
from headrace.common.errors import PoolError

if TYPE_CHECKING:
    from headrace.buffer.store import Store

Array = np.ndarray[Any, Any]
PIECE_BYTES = 1 << 20
STATISTICS = "statistics.npy"


@dataclass(frozen=True)
class Piece:
    """The next entries of every array.

    Attributes:
        first: whether what came before is void, because its rows are gone.
        arrays: file name -> entries, copies.
    """

    first: bool
    arrays: dict[str, Array]


class Capture:
    """What a store holds now.

    Args:
        store: outlives the capture.
        lock: the pool's; held for the plain values and for the first piece.

    Attributes:
        body: the plain values.
        tables: file name -> array that does not grow with the rows.
    """

    def __init__(self, store: Store, lock: AbstractContextManager[object]) -> None:
        self._store, self._segment, self._header = store, store.segment, store.header
        self._lock, self._fence = lock, Fence()
        with lock:
            self.body = store.body()
            moments = store.statistics.get_state()
            self.tables = {
                LEDGER_TABLE: store.ledger.get_state()["entries"],
                STATISTICS: np.stack([moments["mean"], moments["m2"]]),
            }
            self._epoch = self._header[Field.EPOCH]
            self._head, self._frame_head = self._segment.head, self._segment.frame_head
            self._discarded = store.tombstones.within(self._segment.tail, self._head)
            self._labelled: dict[int, Array] = {}
            store.captures.add(self)
            self._start()
        spec = store.spec
        self._step = max(1, PIECE_BYTES // (spec.row_dtype.itemsize + spec.frame_nbytes))

    def _start(self) -> None:
        self._low, self._frame_low = self._segment.tail, self._segment.first_frame()
        self._first, self._first_frame = self._low, self._frame_low

    @property
    def rows(self) -> range:
        """Ids of the rows that the pieces hold since the last one marked ``first``."""
        return range(self._first, self._head)

    def amending(self, ids: Array, rows: Array) -> None:
        """Note that a label is about to change the rows ``ids``, which hold ``rows`` now; the lock is held."""
        for row, old in zip(ids.tolist(), rows, strict=True):
            if self._low <= row < self._head:
                self._labelled.setdefault(row, old.copy())

    def shapes(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """File name -> dtype and shape of each array that comes in pieces, as of the last piece marked ``first``."""
        rows, frames = (len(self.rows),), self._frame_head - self._first_frame
        spec = self._store.spec
        columns = {column_file(name): (ring.dtype, rows) for name, ring in self._segment.columns.items()}
        keys = {frame_file(o.key): (np.dtype(o.dtype), (frames, *o.shape)) for o in spec.obs}
        return {ROWS: (spec.row_dtype, rows), **columns, **keys}

    def pieces(self) -> Iterator[Piece]:
        """Every array from its beginning to its end; to be read once.

        Raises:
            PoolError: rows were evicted faster than they were read, or the pool was closed or loaded meanwhile.
        """
        first = True
        while first or self._low < self._head:
            arrays = None if first else self._copy()
            if arrays is None:
                with self._lock:
                    arrays, first = self._begin(), True
            yield Piece(first, arrays)
            first = False

    def _begin(self) -> dict[str, Array]:
        """The first piece, from the tail on; the lock is held, so nothing can overtake it."""
        tail = self._segment.tail
        if self._low < self._head <= tail:
            raise PoolError("every row was evicted before it was copied: inserts are faster than this medium")
        if self._low < tail < self._head:
            self._start()
        arrays = self._copy()
        if arrays is None:
            raise PoolError("the pool was loaded anew while its state was copied; try again")
        return arrays

    def _copy(self) -> dict[str, Array] | None:
        """The next rows, and the frames up to the last one that they use; None when they are not what was captured."""
        segment, low, frame_low = self._segment, self._low, self._frame_low
        high = min(self._head, low + self._step)
        arrays = {ROWS: segment.rows(low, high)}
        arrays |= {column_file(name): segment.column(name, low, high) for name in segment.columns}
        self._undo_labels(arrays, low, high)
        if not self._is_intact(low):  # frame ids of a row that is half overwritten lead anywhere
            return None
        frame_high = self._frame_head
        if high < self._head:
            newest = max(int(arrays[ROWS][name].max()) for name in ("obs", "next_obs"))
            frame_high = max(frame_low, newest + 1)
        arrays |= {frame_file(o.key): segment.frame_run(o.key, frame_low, frame_high) for o in self._store.spec.obs}
        if not self._is_intact(low):
            return None
        self._low, self._frame_low = high, frame_high
        return arrays

    def _undo_labels(self, arrays: dict[str, Array], low: int, high: int) -> None:
        """Put back what rows ``[low, high)`` held at the instant of the capture."""
        for row in [row for row in list(self._labelled) if low <= row < high]:
            arrays[ROWS][row - low] = self._labelled[row]
            arrays[column_file("outcome")][row - low] = self._labelled[row]["outcome"]
        start, stop = np.searchsorted(self._discarded, (low, high))
        discarded = arrays[column_file("discarded")]
        discarded[:] = 0
        discarded[self._discarded[start:stop] - low] = 1

    def _is_intact(self, row: int) -> bool:
        self._fence()
        header = self._header
        same = header[Field.EPOCH] == self._epoch and not header[Field.RESTORING]
        return same and (row == self._head or header.tail <= row)

    def whole(self) -> Mapping[str, Array]:
        """Every array in one piece, by the file name that a snapshot gives it."""
        out: dict[str, Array] = {}
        filled: dict[str, int] = {}
        for piece in self.pieces():
            if piece.first:
                out = {name: np.empty(shape, dtype) for name, (dtype, shape) in self.shapes().items()}
                filled = dict.fromkeys(out, 0)
            for name, array in piece.arrays.items():
                out[name][filled[name] : filled[name] + len(array)] = array
                filled[name] += len(array)
        return {**out, **self.tables}
