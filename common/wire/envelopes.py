"""Messages that carry another one: a part of it, or all of it in fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.common.wire.fields import U32, pairs, uint
from headrace.common.wire.message import Message

MAX_FRAMES = 256


@dataclass(frozen=True)
class Fragment(Message):
    """Part ``index`` of ``count`` of one larger message of ``total`` bytes. Frame: the bytes."""

    TAG: ClassVar[int] = 3
    index: int = uint(U32)
    count: int = uint(U32)
    total: int = uint()


@dataclass(frozen=True)
class Compressed(Message):
    """A message with deflated frames, in either direction. Frames: its header as it is, then its frames.

    For each of the latter ``frames`` holds (bytes after inflating, bytes of one number by which they are shuffled), and (0, 0)
    for one that travels as it is.
    """

    TAG: ClassVar[int] = 64
    frames: tuple[tuple[int, int], ...] = pairs(MAX_FRAMES, default=())
