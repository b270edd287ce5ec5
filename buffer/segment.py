"""One segment: a ring of rows that point into a ring of frames, with the commit protocol. Knows ids, not identities.

Commit: retire the rows whose frames will be overwritten, write frames and rows into slots that no live row uses, then
publish the new head with one aligned 8-byte store, which also evicts what the capacity no longer holds. Until that store
nothing of the commit can be seen, so a kill at any instruction leaves the old rows or the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace.buffer.fence import Fence
from headrace.buffer.files import Field, PoolFiles
from headrace.buffer.reader import Reader
from headrace.buffer.ring import Geometry, spans
from headrace.common.block import Block
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]


class Segment:
    """Writer of one pool's rings; :attr:`reader` is its read side."""

    def __init__(self, spec: TransitionSpec, sizes: Geometry, files: PoolFiles) -> None:
        self.spec = spec
        self.sizes = sizes
        self.reader = Reader(spec, files)
        self._files = files
        self._header = files.header
        self._fence = Fence()  # for readers without the pool's lock
        self._raw = files.rows.view(f"V{files.rows.itemsize}")
        self._columns = {name: files.rows[name] for name in ("obs", "next_obs", "actor", "stream", "seq")}
        if self._header[Field.COUNTED] != self._header[Field.FLOOR]:  # killed inside retire()
            self._count_retired()
        if self.head > self.tail:
            # The rows of one commit may use its frames in any order, so the last commit's whole reach is looked at.
            last = self.rows(max(self.tail, self.head - self._header[Field.REACH]), self.head)
            self._header[Field.FRAME_HEAD] = max(int(last["obs"].max()), int(last["next_obs"].max())) + 1
        self._frame_floor = self.first_frame()

    @property
    def head(self) -> int:
        """Id after the newest committed row."""
        return self._header.head

    @property
    def tail(self) -> int:
        """Id of the oldest live row; equal to the head when there is none."""
        return self._header.tail

    @property
    def frame_head(self) -> int:
        """Id after the newest written frame."""
        return self._header[Field.FRAME_HEAD]

    @property
    def retired(self) -> int:
        """Rows that went before their time because their frames were overwritten."""
        return self._header.retired

    def parts(self, block: Block, start: int = 0) -> Iterator[Block]:
        """The block's rows from ``start`` on as blocks that fit one commit, in order."""
        if start:
            block = block.part(start, block.n_rows)
        n = block.n_rows
        if n <= self.sizes.max_rows and block.n_frames <= self.sizes.max_frames:
            yield block
        elif n == 1:
            yield block.part(0, 1)  # at most 2 h frames, which always fit
        else:
            for low, high in ((0, n // 2), (n // 2, n)):
                yield from self.parts(block.part(low, high))

    def room_for(self, block: Block) -> int:
        """Where the tail must be before ``block`` may be written: rows below would lose frames to it."""
        limit = self.frame_head + block.n_frames - self.sizes.frame_slots
        return self.tail if limit <= self._frame_floor else self._first_row_with(limit)

    def retire(self, tail: int) -> None:
        """Give up the live rows below ``tail``, and count them."""
        header = self._header
        header[Field.NEXT_RETIRED] = header[Field.RETIRED] + tail - self.tail
        header[Field.FLOOR] = tail  # from here on NEXT_RETIRED counts, also after a kill
        self._count_retired()

    def _count_retired(self) -> None:
        self._header[Field.RETIRED] = self._header[Field.NEXT_RETIRED]
        self._header[Field.COUNTED] = self._header[Field.FLOOR]

    def commit(self, block: Block, actor: int, stream: int, first_seq: int) -> None:
        """Append a block that fits, into room that :meth:`retire` has made."""
        head, frame_head, n = self.head, self.frame_head, block.n_rows
        self._fence()  # the tail is where it is, and then slots below it are written over
        for key, ring in self._files.frames.items():
            write(ring, frame_head, block.frames[key])
        self._write_rows(head, block.rows, frame_head, actor, stream, first_seq)
        self._header[Field.FRAME_HEAD] = frame_head + block.n_frames
        self._fence()  # whoever sees the head sees its rows
        self._header[Field.HEAD] = head + n

    def _write_rows(self, head: int, rows: Array, frame_head: int, actor: int, stream: int, first_seq: int) -> None:
        raw, column = rows.view(self._raw.dtype), self._columns
        for slot, offset, count in spans(head, len(rows), self.sizes.row_slots):
            slots = slice(slot, slot + count)
            self._raw[slots] = raw[offset : offset + count]
            self._files.outcome[slots] = rows["outcome"][offset : offset + count]
            column["obs"][slots] += frame_head
            column["next_obs"][slots] += frame_head
            column["actor"][slots] = actor
            column["stream"][slots] = stream
            column["seq"][slots] = np.arange(first_seq + offset, first_seq + offset + count)

    def rows(self, start: int, stop: int) -> Array:
        """A copy of rows ``[start, stop)``, with the outcome column filled in."""
        return self.reader.rows(np.arange(start, stop))

    @property
    def frames(self) -> Mapping[str, Array]:
        """The frame rings, key -> ``(frame_slots, *shape)``."""
        return self._files.frames

    def newest_obs(self, rows: Array) -> Array:
        """``(n,)`` slots in :attr:`frames` of the newest frame of each row's observation."""
        slots: Array = rows["obs"][:, -1] % self.sizes.frame_slots
        return slots

    def frame_pieces(self, key: str) -> list[Array]:
        """Views of all frames of one key that live rows may use, from :meth:`first_frame` to the frame head, in order."""
        first, ring = self.first_frame(), self._files.frames[key]
        return [ring[s.slot : s.slot + s.length] for s in spans(first, self.frame_head - first, self.sizes.frame_slots)]

    def first_frame(self) -> int:
        """Oldest frame that a live row uses; the frame head when there is no row."""
        # Frames rise from commit to commit, so the oldest one is used within one commit of the tail.
        stop = min(self.head, self.tail + self._header[Field.REACH])
        return int(_oldest(self.rows(self.tail, stop)).min(initial=self.frame_head))

    def _first_row_with(self, limit: int) -> int:
        """First id from which on every live row uses frames >= ``limit`` only; remembers how far that holds."""
        tail, reach = self.tail, self._header[Field.REACH]
        while True:
            oldest = _oldest(self.rows(tail, min(self.head, tail + reach)))
            bad = np.flatnonzero(oldest < limit)
            if not len(bad):
                self._frame_floor = int(oldest.min(initial=self.frame_head))
                return tail
            tail += int(bad[-1]) + 1

    def restore(self, rows: Array, frames: Mapping[str, Array], numbers: Mapping[str, int]) -> None:
        """Hold the newest of ``rows`` in place of everything, under the ids that they had.

        The caller has set ``RESTORING``, and clears it when everything else of the pool is in place too.

        Args:
            rows: ``(n,)`` of the row dtype, those below ``numbers["head"]``, oldest first.
            frames: key -> ``(m, *shape)``, those below ``numbers["frame_head"]``.
            numbers: :meth:`numbers` of the segment that held them.
        """
        head, frame_head = numbers["head"], numbers["frame_head"]
        rows = rows[max(0, len(rows) - self.sizes.capacity) :]
        oldest = _oldest(rows)
        bad = np.flatnonzero(oldest < frame_head - self.sizes.frame_slots)
        lost = int(bad[-1]) + 1 if len(bad) else 0
        rows, first_frame = rows[lost:], int(oldest[lost:].min(initial=frame_head))
        tail = head - len(rows)
        self._fence()  # RESTORING is seen before any row that it makes void is gone
        write(self._raw, tail, rows.view(self._raw.dtype))
        write(self._files.outcome, tail, rows["outcome"])
        for key, ring in self._files.frames.items():
            write(ring, first_frame, frames[key][len(frames[key]) - (frame_head - first_frame) :])
        retired = numbers["retired"] + lost
        values = {Field.HEAD: head, Field.FLOOR: tail, Field.COUNTED: tail, Field.FRAME_HEAD: frame_head}
        values |= {Field.RETIRED: retired, Field.DUPLICATES: numbers["duplicates"]}
        values |= {Field.UPDATES: numbers["updates"], Field.OFFLINE: numbers.get("offline_updates", 0)}
        values |= {Field.REACH: max(self.sizes.max_rows, numbers["reach"])}
        for field, value in values.items():
            self._header[field] = value
        self._frame_floor = first_frame

    def numbers(self) -> dict[str, int]:
        """What :meth:`restore` needs beside rows and frames."""
        header = self._header
        fields = {"duplicates": Field.DUPLICATES, "retired": Field.RETIRED, "reach": Field.REACH}
        fields |= {"updates": Field.UPDATES, "offline_updates": Field.OFFLINE}
        return {"head": self.head, "frame_head": self.frame_head, **{name: header[field] for name, field in fields.items()}}

    def check_valid(self) -> tuple[bool, str]:
        """Whether every live row points at frames that are there."""
        rows = self.rows(self.tail, self.head)
        if not 0 <= self.tail <= self.head or len(rows) > self.sizes.capacity:
            return False, f"rows [{self.tail}, {self.head}) in a pool of {self.sizes.capacity}"
        for name in ("obs", "next_obs"):
            first, last = self.frame_head - self.sizes.frame_slots, self.frame_head
            if len(rows) and (rows[name].min() < first or rows[name].max() >= last):
                return False, f"{name} of a row lies outside frames [{first}, {last})"
        return True, ""


def _oldest(rows: Array) -> Array:
    """Oldest frame of each row, ``(n,)``."""
    oldest: Array = np.minimum(rows["obs"].min(axis=1), rows["next_obs"].min(axis=1))
    return oldest


def write(ring: Array, start: int, values: Array) -> None:
    """Copy ``values`` into the slots of ids ``[start, start + len(values))``."""
    slots, n = len(ring), len(values)
    slot = start % slots
    if slot + n <= slots:
        ring[slot : slot + n] = values
    else:
        ring[slot:], ring[: slot + n - slots] = values[: slots - slot], values[slots - slot :]
