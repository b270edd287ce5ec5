"""Batches <-> messages: several small ones in one message, a large one in pieces, or ids alone for who has mapped the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.common.batch import Batch
from headrace.common.errors import WireError
from headrace.common.specs import TransitionSpec
from headrace.common.staging import batch_nbytes
from headrace.common.wire.codec import Frame, Parts, encode, raw_bytes, take_array
from headrace.common.wire.deflate import plain
from headrace.common.wire.messages import BatchHead, BatchPiece, DrawnHead, Rate

Array = np.ndarray[Any, Any]
# Measured over loopback: messages of 1 MB are allocated, filled and sent while they are in the cache; a message of 50 MB takes
# twice as long, half of it in page faults.
PIECE_BYTES = 1 << 20
MAPPED_BYTES = 4 << 20
MOST_BATCHES = 64
MOST_AHEAD = 256  # batches that one reader may have asked for and not received
AHEAD_BYTES = 256 << 20  # of them; two batches may always be under way


def batches_a_message(spec: TransitionSpec, rows: int, *, mapped: bool = False) -> int:
    """Most batches of ``rows`` rows that one message brings: as many as make a piece, and at least one; more by ids alone."""
    return max(1, min(MOST_BATCHES, (MAPPED_BYTES if mapped else PIECE_BYTES) // batch_nbytes(spec, rows)))


def batch_messages(head: BatchHead, batch: Batch, spec: TransitionSpec) -> list[Parts]:
    """``batch``, which holds the rows of all batches of ``head`` one after the other, as messages without a copy."""
    columns = [raw_bytes(column) for column in _columns(batch, spec)]
    head = replace(head, weights=batch.weights is not None, sets=batch.sets is not None)
    if sum(len(column) for column in columns) <= PIECE_BYTES:
        return [[encode(head), *columns]]
    out: list[Parts] = [[encode(replace(head, pieces=True))]]
    for i, column in enumerate(columns):
        starts = range(0, len(column), PIECE_BYTES)
        out.extend([encode(BatchPiece(i, at)), column[at : at + PIECE_BYTES]] for at in starts)
    return out


class Incoming:
    """A batch that is being received into ``out``, the arrays of as many rows; only the frame for each column fits next.

    Raises:
        WireError: ``arity``, ``size`` or ``piece``.
    """

    def __init__(self, head: BatchHead, frames: Sequence[Frame], out: Batch, spec: TransitionSpec) -> None:
        n = len(out)
        weights = np.empty(n, "<f4") if head.weights else None
        sets = np.empty(n, "|u1") if head.sets else None
        self.head, self.batch = head, replace(out, weights=weights, sets=sets, epoch=head.pool_epoch)
        self._columns = [raw_bytes(column) for column in _columns(self.batch, spec)]
        self._column = self._at = 0
        if len(frames) != (0 if head.pieces else len(self._columns)):
            raise WireError("arity", f"{len(frames)} frames, a batch of this spec has {len(self._columns)}")
        for frame in frames:
            if len(frame) != len(self._columns[self._column]):
                raise WireError("size", f"column {self._column}: {len(frame)} bytes, not {len(self._columns[self._column])}")
            self._take(frame)

    @property
    def complete(self) -> bool:
        """Whether every column is here."""
        return self._column == len(self._columns)

    def add(self, piece: BatchPiece, frames: Sequence[Frame]) -> None:
        """Take the next piece."""
        if len(frames) != 1 or (piece.column, piece.offset) != (self._column, self._at):
            raise WireError("piece", f"column {piece.column} at {piece.offset}, expected {self._column} at {self._at}")
        if not 0 < len(frames[0]) <= len(self._columns[self._column]) - self._at:
            raise WireError("piece", f"{len(frames[0])} bytes for column {self._column}")
        self._take(frames[0])

    def _take(self, frame: Frame) -> None:
        column = self._columns[self._column]
        column[self._at : self._at + len(frame)] = plain(frame)
        self._at += len(frame)
        if self._at == len(column):
            self._column, self._at = self._column + 1, 0


def drawn_message(head: DrawnHead, ids: Array, weights: Array | None, sets: Array | None) -> Parts:
    """The ids of all batches of ``head``, with what the sampler says of each row."""
    head = replace(head, weights=weights is not None, sets=sets is not None)
    return [encode(head), *(raw_bytes(column) for column in (ids, weights, sets) if column is not None)]


def parse_drawn(head: DrawnHead, frames: Sequence[Frame]) -> tuple[Array, Array | None, Array | None]:
    """Ids, weights and sets, views of the frames.

    Raises:
        WireError: ``arity`` or ``size``.
    """
    if len(frames) != 1 + head.weights + head.sets:
        raise WireError("arity", f"{len(frames)} frames, expected {1 + head.weights + head.sets}")
    shape, left = (head.batches * head.rows,), list(frames)
    ids = take_array(left.pop(0), "<i8", shape, "ids")
    weights = take_array(left.pop(0), "<f4", shape, "weights") if head.weights else None
    return ids, weights, take_array(left.pop(0), "|u1", shape, "sets") if head.sets else None


def _columns(batch: Batch, spec: TransitionSpec) -> list[Array]:
    sides = [side[o.key] for o in spec.obs for side in (batch.obs, batch.next_obs)]
    return [column for column in (batch.ids, batch.weights, batch.sets, batch.rows, *sides) if column is not None]


def rate_message(pool_epoch: int, ids: Array, errors: Array) -> Parts:
    """|td| ``(n,)`` float32 of the rows ``ids``, ``(n,)`` int64, as a message."""
    return [encode(Rate(pool_epoch, len(ids))), raw_bytes(ids), raw_bytes(errors)]


def parse_rate(head: Rate, frames: Sequence[Frame]) -> tuple[Array, Array]:
    """Ids and |td|, views of the two frames; raises :class:`WireError` of reason ``size``."""
    shape = (head.rows,)
    return take_array(frames[0], "<i8", shape, "ids"), take_array(frames[1], "<f4", shape, "errors")
