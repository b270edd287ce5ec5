"""Handles: numbers of rows that name the segment in their top byte, so that one batch may hold rows of several segments.

``segment << 56 | id``. A row of the ring, segment 0, is its own handle; segment 1 are the pinned demonstrations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.buffer.reader import Reader
from headrace.common.batch import PINNED, Batch
from headrace.common.staging import batch_nbytes

Array = np.ndarray[Any, Any]
_PIECE_BYTES = 1 << 20  # what is copied twice stays in the cache


class HandleReader:
    """Gathers the rows of a batch from the segments that their handles name.

    Args:
        online: of the ring.
        pinned: of the demonstrations, whose ids begin at 0; None where there are none.
    """

    def __init__(self, online: Reader, pinned: Reader | None) -> None:
        self._online, self._pinned = online, pinned
        self._piece = max(1, _PIECE_BYTES // batch_nbytes(online.spec, 1))

    def gather(self, handles: Array, out: Batch | None = None) -> Batch:
        """The rows ``handles``, ``(B,)`` int64, with their observations; see :meth:`Reader.gather`."""
        if self._pinned is None or not (pinned := handles >= PINNED).any():
            return self._online.gather(handles, out)
        out = self._online.staging(len(handles)) if out is None else out
        for reader, mine, first in ((self._online, ~pinned, 0), (self._pinned, pinned, PINNED)):
            places = np.flatnonzero(mine)
            for low in range(0, len(places), self._piece):
                some = places[low : low + self._piece]
                _put(out, some, reader.gather(handles[some] - first))
        return Batch(handles, out.rows, out.obs, out.next_obs)


def _put(batch: Batch, places: Array, part: Batch) -> None:
    raw = f"V{part.rows.itemsize}"  # one move a row instead of one a field
    batch.rows.view(raw)[places] = part.rows.view(raw)
    for ours, theirs in ((batch.obs, part.obs), (batch.next_obs, part.next_obs)):
        for key, values in theirs.items():
            ours[key][places] = values
