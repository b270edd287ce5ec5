"""Frames laid anew in the order of the rows that use them, each once: how a smaller ring takes rows out of a larger one.

A block may refer to its frames in any order; of a plain one the states come first and the next states behind them. So the
newest rows may use few frames, and yet reach further back than a ring that has room for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def pack(rows: Array, frame_head: int, slots: int) -> tuple[Array, Array]:
    """The newest ``rows`` that need at most ``slots`` frames together, as if they had been written in this order.

    Args:
        rows: ``(n,)`` of the row dtype.
        frame_head: id after the newest frame, before and after.
        slots: of the frame ring.

    Returns:
        The rows with new ids of their frames, and ``(m,)`` the old ids of the frames ``frame_head - m .. frame_head - 1``.
    """
    ids = np.concatenate([rows["obs"], rows["next_obs"]], axis=1)
    _, behind = np.unique(ids[::-1], return_index=True)
    last = len(rows) - 1 - behind // ids.shape[1]  # row that uses each frame last
    lost = 0 if len(last) <= slots else int(np.sort(last)[-slots - 1]) + 1
    rows, ids = rows[lost:].copy(), ids[lost:]
    used, first, where = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.empty(len(used), np.int64)
    places[order] = np.arange(frame_head - len(used), frame_head)
    ids = places[where].reshape(ids.shape)
    rows["obs"], rows["next_obs"] = np.split(ids, 2, axis=1)
    return rows, used[order]


def taken(pieces: Sequence[Array], places: Array) -> Array:
    """The entries at ``places``, ``(m,)``, of ``pieces`` laid end to end."""
    out = np.empty((len(places), *pieces[0].shape[1:]), pieces[0].dtype)
    start = 0
    for piece in pieces:
        inside = (places >= start) & (places < start + len(piece))
        out[inside] = piece[places[inside] - start]
        start += len(piece)
    return out
