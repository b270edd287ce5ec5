"""Id arithmetic of the two rings: which slots an id takes, and how many slots a pool needs. Pure, no arrays of data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from headrace.buffer.config import PoolConfig
from headrace.common.specs import TransitionSpec


class Span(NamedTuple):
    """A run of consecutive ids that lies in one piece: slots ``[slot, slot + length)``, from position ``offset`` of the run."""

    slot: int
    offset: int
    length: int


def spans(start: int, count: int, slots: int) -> list[Span]:
    """The pieces, at most two, in which ids ``[start, start + count)`` lie in a ring of ``slots`` >= ``count`` slots."""
    slot = start % slots
    first = min(count, slots - slot)
    if first == count:
        return [Span(slot, 0, count)]
    return [Span(slot, 0, first), Span(0, first, count - first)]


@dataclass(frozen=True)
class Geometry:
    """Sizes of one pool's rings.

    Attributes:
        capacity: newest rows that are live.
        max_rows: most rows written by one commit.
        max_frames: most frames written by one commit.
        row_slots: capacity and a slack of ``max_rows``, so that a commit never writes over a live row.
        frame_slots: the same for frames, see :func:`geometry`.
    """

    capacity: int
    max_rows: int
    max_frames: int
    row_slots: int
    frame_slots: int

    def rows_of(self, frames: int) -> int:
        """Newest rows that are sure to stay where each brings so many frames of its own, at most the capacity."""
        return min(self.capacity, max(0, self.frame_slots - frames * self.max_rows) // frames)


def geometry(spec: TransitionSpec, config: PoolConfig) -> Geometry:
    """Ring sizes for which the newest ``capacity`` rows keep their frames.

    A block of r rows brings one fresh frame a row, the frames ahead of its last row (the window K for overlapping rows,
    one decision for chunks), the h - 1 frames of history of its first stack, and one more for each episode that ends in
    it. Regular blocks and episodes have at least ``min_block_rows`` rows, so at most two ends fall on that many rows in
    the long run; where each row of so small a block may end an episode anyway, that worst case is taken. Irregular blocks are
    stored too: they may cost the oldest rows their frames, and those rows are then retired and counted.
    """
    max_rows = min(config.max_block_rows, config.capacity)
    small = min(config.min_block_rows, max_rows)
    regular = min(_worst_frames(spec, small), _regular_frames(spec, small))
    max_frames = max(2 * spec.stack, _worst_frames(spec, max_rows))
    frame_slots = math.ceil((config.capacity + max_rows) / small) * regular + max_frames
    return Geometry(config.capacity, max_rows, max_frames, config.capacity + max_rows, frame_slots)


def _worst_frames(spec: TransitionSpec, rows: int) -> int:
    """Frames of a block in which every row ends an episode of its own."""
    fresh, ahead = _fresh(spec)
    return fresh * (2 * rows + ahead - 1) + spec.stack - fresh


def _regular_frames(spec: TransitionSpec, rows: int) -> int:
    """Frames of a block with two episode ends."""
    fresh, ahead = _fresh(spec)
    return fresh * (rows + 2 + ahead) + spec.stack - fresh


def _fresh(spec: TransitionSpec) -> tuple[int, int]:
    """Frames that each further decision adds, and decisions ahead of the last row that are needed."""
    if spec.kind == "steps":
        return 1, spec.window
    return min(spec.stack, spec.window), 1  # a chunk passes up to K env steps, of which the next stack sees the last h
