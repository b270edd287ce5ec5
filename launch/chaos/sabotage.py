"""Sabotage: lies about acknowledged rows, told behind the witness's back, that the checker must find.

kind        what is done in place of what is right                                   what must be found
drop        a block is not sent, once; those behind it are acknowledged over the gap lost
duplicate   a block is sent, and once more under a stream that nobody numbered       duplicated
flip        a block is sent with one bit of its observations turned                  corrupted
replay      a block is sent, and once more when the pool has evicted it              duplicated
lane        the rows of a block say that they are of another lane's episode          corrupted
label       labels say the opposite                                                  mislabelled
swallow     what is to lie in the spool is not put there, once                       lost
stolen      somebody comes in by a key that is not his                               intruded
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.common.block import Block
from headrace.common.specs import OUTCOME_FAILURE, OUTCOME_SUCCESS, TransitionSpec
from headrace.common.wire import messages as m
from headrace.common.wire.codec import Parts, encode
from headrace.launch.chaos.history import History
from headrace.launch.chaos.witness import Head

FINDS = {
    "drop": "lost",
    "duplicate": "duplicated",
    "flip": "corrupted",
    "replay": "duplicated",
    "lane": "corrupted",
    "label": "mislabelled",
    "swallow": "lost",
    "stolen": "intruded",
}
STOLEN = "stolen"  # is told by somebody who is no actor of the job
BLOCK = 5  # which block is lied about
FORGED = 1 << 40  # added to the stream of a forged block
OPPOSITE = {OUTCOME_SUCCESS: OUTCOME_FAILURE, OUTCOME_FAILURE: OUTCOME_SUCCESS}


class Saboteur:
    """Lies once, about labels always.

    Args:
        kind: one of :data:`FINDS`.
        spec: of the rows.
        evicted_after: rows of its own after which a row is gone from the pool.
        history: is told when the lie is told.
    """

    def __init__(self, kind: str, spec: TransitionSpec, evicted_after: int, history: History) -> None:
        self._kind, self._spec, self._evicted_after, self._history = kind, spec, evicted_after, history
        self._blocks = 0
        self._kept: tuple[m.BlockHead, Parts] | None = None
        self._done = False

    def keeps(self, block: Block) -> bool:
        """Whether a block is kept."""
        if self._kind != "swallow":
            return True
        self._blocks += 1
        if self._done or self._blocks < BLOCK:
            return True
        self._tell(0, 0, block.n_rows)
        return False

    def __call__(self, head: Head, parts: Parts) -> list[Parts]:
        """What is sent in place of a block or a label."""
        if isinstance(head, m.LabelHead):
            return [self._labelled(head, parts)] if self._kind == "label" else [parts]
        if self._kind in ("label", "swallow"):
            return [parts]
        self._blocks += 1
        if self._done or self._blocks < BLOCK:
            return [parts]
        if self._kept is None:
            self._kept = head, [bytes(part) for part in parts]
        first, kept = self._kept
        if self._kind == "replay" and head.seq - first.seq < self._evicted_after:
            return [parts]
        self._tell(first.stream, first.seq, first.rows)
        if self._kind == "drop":
            return []
        if self._kind == "flip":
            return [[*parts[:2], _flipped(parts[2]), *parts[3:]]]
        if self._kind == "lane":
            rows = np.frombuffer(parts[1], self._spec.row_dtype).copy()
            rows["episode"] += 1
            return [[parts[0], rows.tobytes(), *parts[2:]]]
        return [parts, [encode(replace(first, stream=first.stream + FORGED, seq=1)), *kept[1:]]]

    def _labelled(self, head: m.LabelHead, parts: Parts) -> Parts:
        if not self._done:
            self._tell(head.stream, head.first, head.last + 1 - head.first)
        return [encode(replace(head, outcome=OPPOSITE.get(head.outcome, head.outcome))), *parts[1:]]

    def _tell(self, stream: int, first: int, rows: int) -> None:
        self._done = True
        self._history.write("sabotaged", self._kind, stream, first, rows)


def _flipped(frame: bytes | memoryview) -> bytes:
    out = bytearray(frame)
    out[0] ^= 1
    return bytes(out)
