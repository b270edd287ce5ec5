"""One segment: a ring of rows that point into a ring of frames, with the commit protocol. Knows ids, not identities.

Commit: retire the rows whose frames will be overwritten, write frames and rows into slots that no live row uses, then
publish the new head with one aligned 8-byte store, which also evicts what the capacity no longer holds. Until that store
nothing of the commit can be seen, so a kill at any instruction leaves the old rows or the new ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.buffer.fence import Fence
from headrace.buffer.files import ROWS, PoolFiles
from headrace.buffer.header import MOST, Field
from headrace.buffer.packing import pack, taken
from headrace.buffer.reader import Reader
from headrace.buffer.ring import Geometry, Span, spans
from headrace.common.block import Block
from headrace.common.errors import PoolDamaged
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
_PIECE_ROWS = 1 << 16
_PIECE_BYTES = 1 << 24
_FIND_ROWS = 4096
_MARKS = 1024
NUMBERS = {  # counts that a snapshot keeps
    "duplicates": Field.DUPLICATES,
    "retired": Field.RETIRED,
    "discarded": Field.DISCARDED,
    "labels_gone": Field.LABELS_GONE,
    "updates": Field.UPDATES,
    "offline_updates": Field.OFFLINE,
    "max_priority": Field.MAX_PRIORITY,
    "stale_updates": Field.STALE_UPDATES,
}


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
        self._fields = frozenset(files.rows.dtype.names or ())
        self._columns = {name: files.rows[name] for name in ("obs", "next_obs", "actor", "stream", "seq")}
        self._references = files.rows.view(as_bytes(files.rows.dtype, "obs", "next_obs"))["bytes"]
        self.settle()

    def settle(self) -> None:
        """Finish a retirement and forget a commit that were cut off, by a kill or by an exception in their middle."""
        if self._header[Field.COUNTED] != self._header[Field.FLOOR]:
            self._count_retired()
        if self.head > self.tail:
            # The rows of one commit may use its frames in any order, so the last commit's whole reach is looked at.
            last = self.rows(max(self.tail, self.head - self._header[Field.REACH]), self.head)
            newest = max(int(last["obs"].max()), int(last["next_obs"].max()))
            if not 0 <= newest < MOST:
                raise PoolDamaged(
                    f"{self._files.folder}/{ROWS}: a row points at frame {newest}, a pool counts from 0 to {MOST}"
                )
            self._header[Field.FRAME_HEAD] = newest + 1
        self._frame_floor = self.first_frame()  # no live row uses an older one
        self._marks: deque[tuple[int, int]] = deque()  # rows from the first number on use frames from the second on

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
        """Rows that went before their time because their frames were overwritten, without those discarded before."""
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
        """Give up the live rows below ``tail``, and count those that were not discarded before."""
        header = self._header
        lost = tail - self.tail - np.count_nonzero(self.column("discarded", self.tail, tail))
        header[Field.NEXT_RETIRED] = header[Field.RETIRED] + int(lost)
        header[Field.FLOOR] = tail  # from here on NEXT_RETIRED counts, also after a kill
        self._count_retired()

    def _count_retired(self) -> None:
        self._header[Field.RETIRED] = self._header[Field.NEXT_RETIRED]
        self._header[Field.COUNTED] = self._header[Field.FLOOR]

    def ahead(self, most: int) -> dict[str, Array]:
        """Free frame slots from the frame head on, at most ``most`` and in one piece: key -> ``(n, *shape)``, views.

        What is written there is nobody's until a commit makes it the next frames.
        """
        head, slots = self.frame_head, self.sizes.frame_slots
        while len(self._marks) > 1 and self._marks[1][0] <= self.tail:
            self._marks.popleft()
        if self._marks and self._marks[0][0] <= self.tail:
            self._frame_floor = max(self._frame_floor, self._marks[0][1])
        if head + most - slots > self._frame_floor:
            self._frame_floor = self.first_frame()
        slot = head % slots
        n = min(most, slots - slot, self._frame_floor + slots - head)
        self._fence()  # as in a commit
        return {key: ring[slot : slot + n] for key, ring in self._files.frames.items()}

    def commit(self, block: Block, actor: int, stream: int, first_seq: int) -> None:
        """Append a block that fits, into room that :meth:`retire` has made."""
        head, frame_head = self.head, self.frame_head
        self._fence()  # the tail is where it is, and then slots below it are written over
        for key, ring in self._files.frames.items():
            write(ring, frame_head, block.frames[key])
        self._write_rows(head, block.rows)
        self._number(head, block.n_rows, frame_head, actor, stream, first_seq)
        self._publish(head + block.n_rows, frame_head + block.n_frames)

    def commit_placed(self, block: Block) -> None:
        """The same for rows that are numbered and hold frame ids, and whose frames are in :meth:`ahead`."""
        self._fence()
        if not self._marks or self.head - self._marks[-1][0] >= max(self.sizes.max_rows, self.sizes.capacity // _MARKS):
            self._marks.append((self.head, self.frame_head))
        self._write_rows(self.head, block.rows)
        self._publish(self.head + block.n_rows, self.frame_head + block.n_frames)

    def _publish(self, head: int, frame_head: int) -> None:
        self._header[Field.FRAME_HEAD] = frame_head
        self._fence()  # whoever sees the head sees its rows
        self._header[Field.HEAD] = head

    def _write_rows(self, head: int, rows: Array) -> None:
        raw = rows.view(self._raw.dtype)
        for slot, offset, count in spans(head, len(rows), self.sizes.row_slots):
            slots = slice(slot, slot + count)
            self._raw[slots] = raw[offset : offset + count]
            for name, mutable in self._files.columns.items():
                mutable[slots] = rows[name][offset : offset + count] if name in self._fields else 0

    def _number(self, head: int, n: int, frame_head: int, actor: int, stream: int, first_seq: int) -> None:
        column = self._columns
        for slot, offset, count in spans(head, n, self.sizes.row_slots):
            slots = slice(slot, slot + count)
            column["obs"][slots] += frame_head
            column["next_obs"][slots] += frame_head
            column["actor"][slots] = actor
            column["stream"][slots] = stream
            column["seq"][slots] = np.arange(first_seq + offset, first_seq + offset + count)

    def rows(self, start: int, stop: int) -> Array:
        """A copy of rows ``[start, stop)``, with the outcome column filled in."""
        return self.reader.rows(np.arange(start, stop))

    def column(self, name: str, start: int, stop: int) -> Array:
        """A copy of a mutable column's entries of rows ``[start, stop)``."""
        values: Array = self._files.columns[name].take(np.arange(start, stop) % self.sizes.row_slots)
        return values

    @property
    def columns(self) -> Mapping[str, Array]:
        """The mutable columns, name -> ``(row_slots,)``."""
        return self._files.columns

    def frame_run(self, key: str, start: int, stop: int) -> Array:
        """A copy of frames ``[start, stop)`` of one key."""
        ring = self._files.frames[key]
        return np.concatenate([ring[s.slot : s.slot + s.length] for s in spans(start, stop - start, self.sizes.frame_slots)])

    def pieces(self) -> tuple[dict[str, list[Array]], dict[str, list[Array]]]:
        """Views of the live rows (``rows``, each mutable column) and of the frames that they may use (each key), in order."""
        rows = spans(self.tail, self.head - self.tail, self.sizes.row_slots)
        first = self.first_frame()
        frames = spans(first, self.frame_head - first, self.sizes.frame_slots)
        rings = {"rows": self._files.rows, **self._files.columns}
        return _cut(rings, rows), _cut(self._files.frames, frames)

    def find(self, actor: int, stream: int, first: int, last: int) -> Array:
        """Ids of the live rows ``first .. last`` of a stream, ascending.

        Looks backwards from the head, and no further than the stream's first row in front of the range.
        """
        column, found = self._columns, []
        stop, missing = self.head, last - first + 1
        while stop > self.tail and missing > 0:
            start = max(self.tail, stop - _FIND_ROWS)
            slots = np.arange(start, stop) % self.sizes.row_slots
            mine = np.flatnonzero((column["actor"][slots] == actor) & (column["stream"][slots] == stream))
            seq = column["seq"][slots[mine]]
            inside = mine[(seq >= first) & (seq <= last)]
            found.append(start + inside)
            missing -= len(inside)
            if len(seq) and seq[0] < first:  # within a stream ids and seqs rise together
                break
            stop = start
        return np.concatenate(found[::-1]) if found else np.empty(0, np.int64)

    @property
    def frames(self) -> Mapping[str, Array]:
        """The frame rings, key -> ``(frame_slots, *shape)``."""
        return self._files.frames

    def newest_obs(self, rows: Array) -> Array:
        """``(n,)`` slots in :attr:`frames` of the newest frame of each row's observation."""
        slots: Array = rows["obs"][:, -1] % self.sizes.frame_slots
        return slots

    def first_frame(self) -> int:
        """Oldest frame that a live row uses; the frame head when there is no row."""
        return self._first_frame(self.tail)

    def _first_frame(self, tail: int) -> int:
        """The same if ``tail`` were the tail."""
        # Frames rise from commit to commit, so the oldest one is used within one commit of the tail.
        oldest, near = self.frame_head, min(self.head - tail, self._header[Field.REACH])
        for slot, _, count in spans(tail, near, self.sizes.row_slots):
            frames = self._references[slot : slot + count].copy().view("<i8")  # one walk over rows far apart
            oldest = int(np.minimum.reduce(frames, initial=oldest))
        return oldest

    def _first_row_with(self, limit: int) -> int:
        """First id from which on every live row uses frames >= ``limit`` only; remembers how far that holds."""
        tail, reach = self.tail, self._header[Field.REACH]
        while (oldest := self._first_frame(tail)) < limit:
            frames = _oldest(self.rows(tail, min(self.head, tail + reach)))
            tail += int(np.flatnonzero(frames < limit)[-1]) + 1
        self._frame_floor = oldest
        return tail

    def restore(
        self, rows: Mapping[str, Sequence[Array]], frames: Mapping[str, Sequence[Array]], numbers: Mapping[str, int]
    ) -> None:
        """Hold the newest of ``rows`` in place of everything, under the ids that they had.

        The caller has set ``RESTORING``, and clears it when everything else of the pool is in place too.

        Args:
            rows: ``rows`` and mutable columns -> pieces that laid end to end are those below ``numbers["head"]``; an optional
                column that is missing is filled with zeros.
            frames: key -> pieces likewise, those below ``numbers["frame_head"]``.
            numbers: :meth:`numbers` of the segment that held them.
        """
        head, frame_head = numbers["head"], numbers["frame_head"]
        count = sum(map(len, rows["rows"]))
        over = max(0, count - self.sizes.capacity)
        kept, used, lost = _drop(rows["rows"], over), np.empty(0, np.int64), 0
        first_frame = min((int(_oldest(part).min()) for part in _parts(kept)), default=frame_head)
        if first_frame < frame_head - self.sizes.frame_slots:
            whole = np.concatenate([part.view(self._raw.dtype) for part in kept]).view(self._files.rows.dtype)
            packed, used = pack(whole, frame_head, self.sizes.frame_slots)
            lost, first_frame, kept = count - over - len(packed), frame_head - len(used), [packed]
        tail = head - count + over + lost
        self._fence()  # RESTORING is seen before any row that it makes void is gone
        _write_all(self._raw, tail, kept)
        for name, column in self._files.columns.items():
            _write_all(column, tail, _drop(rows[name] if name in rows else [np.zeros(count, column.dtype)], over + lost))
        for key, ring in self._files.frames.items():
            there = sum(map(len, frames[key]))
            if len(used):
                _write_taken(ring, first_frame, frames[key], used - (frame_head - there))
            else:
                _write_all(ring, first_frame, _drop(frames[key], there - (frame_head - first_frame)))
        discarded = rows["discarded"]
        dead = _count(_drop(discarded, over)) - _count(_drop(discarded, over + lost))
        retired = numbers["retired"] + lost - dead
        values = {Field.HEAD: head, Field.FLOOR: tail, Field.COUNTED: tail, Field.FRAME_HEAD: frame_head}
        values |= {field: numbers[name] for name, field in NUMBERS.items()}
        values[Field.RETIRED], values[Field.SETTLED] = retired, 0
        values |= {Field.REACH: max(self.sizes.max_rows, numbers["reach"])}
        for field, value in values.items():
            self._header[field] = value
        self._frame_floor = first_frame
        self._marks.clear()

    def numbers(self) -> dict[str, int]:
        """What :meth:`restore` needs beside rows and frames."""
        header = self._header
        numbers = {name: header[field] for name, field in NUMBERS.items()}
        return {"head": self.head, "frame_head": self.frame_head, "reach": header[Field.REACH], **numbers}

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


def as_bytes(row: np.dtype[Any], *names: str) -> np.dtype[Any]:
    """The row dtype with the neighbouring fields ``names`` as one, ``bytes``: one move a row instead of one a number."""
    fields: Mapping[str, Any] = row.fields or {}
    size, offset = sum(fields[name][0].itemsize for name in names), fields[names[0]][1]
    return np.dtype({"names": ["bytes"], "formats": [f"V{size}"], "offsets": [offset], "itemsize": row.itemsize})


def _cut(rings: Mapping[str, Array], runs: Sequence[Span]) -> dict[str, list[Array]]:
    return {name: [ring[s.slot : s.slot + s.length] for s in runs] for name, ring in rings.items()}


def _drop(pieces: Sequence[Array], count: int) -> list[Array]:
    """The pieces without the first ``count`` entries."""
    out = []
    for piece in pieces:
        out.append(piece[count:])
        count = max(0, count - len(piece))
    return out


def _parts(pieces: Sequence[Array]) -> Iterator[Array]:
    """The pieces again, a bounded number of entries at a time."""
    for piece in pieces:
        for low in range(0, len(piece), _PIECE_ROWS):
            yield piece[low : low + _PIECE_ROWS]


def _count(pieces: Sequence[Array]) -> int:
    return sum(int(np.count_nonzero(piece)) for piece in pieces)


def _write_all(ring: Array, start: int, pieces: Sequence[Array]) -> None:
    for piece in pieces:
        write(ring, start, piece.view(ring.dtype) if ring.dtype.kind == "V" else piece)
        start += len(piece)


def _write_taken(ring: Array, start: int, pieces: Sequence[Array], places: Array) -> None:
    """Write the entries at ``places`` of the pieces laid end to end, a bounded number of bytes at a time."""
    step = max(1, _PIECE_BYTES // max(1, ring[:1].nbytes))
    for low in range(0, len(places), step):
        write(ring, start + low, taken(pieces, places[low : low + step]))


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
