"""Large messages in parts: cut parts of bounded size on one side, join them on the other under a byte cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.common.errors import WireError
from headrace.common.wire.codec import MAX_PARTS, Frame, Parts, Raw, encode
from headrace.common.wire.messages import Fragment


def size_of(parts: Sequence[Frame]) -> int:
    """Bytes of all frames of a message."""
    return sum(len(p) for p in parts)


def split(parts: Parts, limit: int) -> Iterator[Parts]:
    """The message itself when it has at most ``limit`` bytes, else fragments of at most ``limit`` bytes each."""
    if size_of(parts) <= limit:
        yield parts
        return
    head = b"".join([len(parts).to_bytes(4, "little"), *(len(p).to_bytes(8, "little") for p in parts)])
    total = len(head) + size_of(parts)
    count = -(-total // limit)
    for i, data in enumerate(_cut([head, *parts], limit)):
        yield [encode(Fragment(i, count, total)), data]


def _cut(frames: Sequence[Raw], size: int) -> Iterator[Raw]:
    """The bytes of all frames in pieces of ``size``: views, but for those that begin in one frame and end in another."""
    waiting: list[memoryview] = []
    room = size
    for frame in frames:
        rest = memoryview(frame)
        while len(rest) > 0:
            piece, rest = rest[:room], rest[room:]
            waiting.append(piece)
            room -= len(piece)
            if room == 0:
                yield piece if len(waiting) == 1 else b"".join(waiting)
                waiting, room = [], size
    if waiting:
        yield b"".join(waiting)


class Joiner:
    """Joins the fragments of one session, which arrive in order; holds at most ``cap`` bytes."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._next = 0
        self._of = (0, 0)

    def add(self, head: Fragment, data: Raw) -> Parts | None:
        """Take one fragment; the joined message when it was the last one.

        Raises:
            WireError: ``fragment`` when it is out of order or beyond the cap; what was held is dropped.
        """
        first = head.index == 0
        if first:
            self.drop()
            self._of = (head.count, head.total)
        fits = head.total <= self._cap and 0 < len(data) <= head.total - len(self._buffer)
        if (head.count, head.total) != self._of or head.index != self._next or not fits or head.index >= head.count:
            self.drop()
            raise WireError("fragment", f"part {head.index} of {head.count}, {head.total} bytes in all, cap {self._cap}")
        self._buffer += data
        self._next += 1
        if self._next < head.count:
            return None
        whole = memoryview(self._buffer).toreadonly()  # not a copy: a message may be as large as memory allows one
        self.drop()
        return _parts(whole, head.total)

    @property
    def total(self) -> int:
        """Bytes that the message will have whose rest is to come; 0 without one."""
        return self._of[1]

    @property
    def held(self) -> int:
        """Bytes of a message whose rest is to come."""
        return len(self._buffer)

    def drop(self) -> None:
        """Forget a message that will not be completed."""
        self._buffer = bytearray()
        self._next = 0
        self._of = (0, 0)


def _parts(whole: memoryview, total: int) -> Parts:
    count = int.from_bytes(whole[:4], "little")
    if len(whole) != total or not 1 <= count <= MAX_PARTS or len(whole) < 4 + 8 * count:
        raise WireError("fragment", "joined bytes are not a message")
    lengths = [int.from_bytes(whole[4 + 8 * i : 12 + 8 * i], "little") for i in range(count)]
    at = 4 + 8 * count
    if sum(lengths) != len(whole) - at:
        raise WireError("fragment", "frame lengths do not add up")
    out: Parts = []
    for n in lengths:
        out.append(whole[at : at + n])
        at += n
    return out
