"""Compression for slow links: a message whose frames travel deflated where they shrink, once both ends have agreed to it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.common.errors import WireError
from headrace.common.specs import TransitionSpec
from headrace.common.wire.codec import Parts, decode, encode
from headrace.common.wire.deflate import Deflated, Frame, deflate, plain
from headrace.common.wire.envelopes import Compressed
from headrace.common.wire.fragments import size_of
from headrace.common.wire.message import Message
from headrace.common.wire.messages import BatchHead, BatchPiece, BlockHead, Publish, WeightsPart
from headrace.common.wire.versions import LACKS

NONE, ZLIB = "none", "zlib"  # of the names in network.compression
LARGEST = 16 << 20  # more at a time would hold up heartbeats
WEIGHTS = (1, 4)  # widths of what weight sets are made of
CARRIED = (BlockHead, Publish, BatchHead, BatchPiece, WeightsPart)  # what is worth it


def agreed(name: str) -> str:
    """What a session uses when its client asks for ``name``: that, or nothing."""
    return name if name == ZLIB else NONE


def widths(spec: TransitionSpec) -> tuple[int, ...]:
    """Widths of what rows and observations are made of: bytes, float32, whole rows."""
    return (*WEIGHTS, spec.row_dtype.itemsize)


def compress(parts: Parts, by: Sequence[int]) -> Parts:
    """The message with those of its frames deflated that shrink by it, shuffled by one of the widths ``by``; or as it is."""
    if size_of(parts) > LARGEST or not isinstance(decode(parts[0]), CARRIED):
        return parts
    frames = [deflate(part, by) for part in parts[1:]]
    sizes = tuple((0, 0) if f is None else (f.size, f.width) for f in frames)
    data = [part if f is None else f.data for f, part in zip(frames, parts[1:], strict=True)]
    out = [encode(Compressed(sizes)), parts[0], *data]
    return out if size_of(out) < size_of(parts) else parts


def expand(head: Compressed, frames: Sequence[Frame], most: int) -> tuple[Message, list[Frame]]:
    """The message inside, and its frames; those that are deflated stay so until somebody has compared their size.

    Args:
        head: says which frames are deflated.
        frames: of ``head``.
        most: bytes that the message may have.

    Raises:
        WireError: ``compressed``, ``arity`` or ``size``; of the message inside, what :func:`decode` refuses.
    """
    if len(frames) != 1 + len(head.frames):
        raise WireError("arity", f"{len(frames)} frames, {1 + len(head.frames)} are declared")
    message = decode(plain(frames[0]), LACKS)
    if not isinstance(message, CARRIED):
        raise WireError("compressed", f"{type(message).__name__} does not travel compressed")
    declared = 0
    for (size, width), frame in zip(head.frames, frames[1:], strict=True):
        if (size == 0) != (width == 0) or width > size:
            raise WireError("compressed", f"a frame of {size} bytes in numbers of {width}")
        declared += size or len(frame)
    if declared > most:
        raise WireError("size", f"{declared} bytes are declared, at most {most}")
    pairs = zip(head.frames, frames[1:], strict=True)
    return message, [Deflated(plain(frame), size, width) if size else frame for (size, width), frame in pairs]
