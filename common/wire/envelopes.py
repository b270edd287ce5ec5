"""Messages that carry another one: a part of it, or all of it in fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.common.wire.fields import U32, pairs, uint
from headrace.common.wire.message import BUFFER, Message

MAX_FRAMES = 256


@dataclass(frozen=True)
class Fragment(Message, tag=3, senders=("actor", "learner", "rank", BUFFER), frames=1):
    """Part ``index`` of ``count`` of one larger message of ``total`` bytes. Frame: the bytes."""

    index: int = uint(U32)
    count: int = uint(U32)
    total: int = uint()


@dataclass(frozen=True)
class Compressed(Message, tag=64, senders=("actor", "learner", "rank", BUFFER), frames=None):
    """A message with deflated frames, in either direction. Frames: its header as it is, then its frames.

    For each of the latter ``frames`` holds (bytes after inflating, bytes of one number by which they are shuffled), and (0, 0)
    for one that travels as it is.
    """

    frames: tuple[tuple[int, int], ...] = pairs(MAX_FRAMES, default=())
