"""Sabotage: four lies about acknowledged rows, told on the wire behind the witness's back, that the checker must find.

kind        what is sent in place of an honest block                              what must be found
drop        nothing, once; blocks behind it are acknowledged over the gap         lost
duplicate   the block, and once more under a stream that nobody numbered          duplicated
flip        the block with one bit of its observations turned                     corrupted
replay      the block, and once more when the pool has evicted it                 duplicated
"""

from __future__ import annotations

from dataclasses import replace

from headrace.common.wire import messages as m
from headrace.common.wire.codec import Parts, encode
from headrace.launch.chaos.history import History

FINDS = {"drop": "lost", "duplicate": "duplicated", "flip": "corrupted", "replay": "duplicated"}
BLOCK = 5  # which block is lied about
FORGED = 1 << 40  # added to the stream of a forged block


class Saboteur:
    """Lies once.

    Args:
        kind: one of :data:`FINDS`.
        evicted_after: rows of its own after which a row is gone from the pool.
        history: is told when the lie is told.
    """

    def __init__(self, kind: str, evicted_after: int, history: History) -> None:
        self._kind, self._evicted_after, self._history = kind, evicted_after, history
        self._blocks = 0
        self._kept: tuple[m.BlockHead, Parts] | None = None
        self._done = False

    def __call__(self, head: m.BlockHead, parts: Parts) -> list[Parts]:
        """What is sent in place of a block."""
        self._blocks += 1
        if self._done or self._blocks < BLOCK:
            return [parts]
        if self._kept is None:
            self._kept = head, [bytes(part) for part in parts]
        first, kept = self._kept
        if self._kind == "replay" and head.seq - first.seq < self._evicted_after:
            return [parts]
        self._done = True
        self._history.write("sabotaged", self._kind, first.stream, first.seq, first.rows)
        if self._kind == "drop":
            return []
        if self._kind == "flip":
            return [[*parts[:2], _flipped(parts[2]), *parts[3:]]]
        return [parts, [encode(replace(first, stream=first.stream + FORGED, seq=1)), *kept[1:]]]


def _flipped(frame: bytes | memoryview) -> bytes:
    out = bytearray(frame)
    out[0] ^= 1
    return bytes(out)
