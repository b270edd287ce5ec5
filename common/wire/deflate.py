"""Frames that travel deflated: made where that is shorter, inflated only to the size that was expected of them.

The numbers of a column differ less byte by byte than as numbers, so their bytes are sorted by their place in the number first
(byte shuffle). On float observations and weights that gains what deflate alone does not find.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.common.errors import WireError

Raw = bytes | memoryview
LEVEL = 1  # a link that 60 MB/s of deflate hold up needs none
LEAST_BYTES = 512  # shorter frames are not worth their entry in the header
SAMPLE_BYTES = 4096
WORTH = 0.95  # of its length; a sample that does not shrink to that speaks for its frame


@dataclass(frozen=True)
class Deflated:
    """A frame as it travelled; ``len`` is what its sender says that it inflates to.

    So everything that compares the length of a frame with the spec does so before a byte is inflated.

    Attributes:
        data: what travelled.
        size: bytes after inflating, declared by the sender.
        width: bytes of one number, by which they were shuffled; 1 for as they are.
    """

    data: Raw
    size: int
    width: int

    def __len__(self) -> int:
        return self.size

    def inflate(self) -> Raw:
        """The frame, in memory of its declared size.

        Raises:
            WireError: ``inflate``: there are more or fewer bytes, or other ones behind them, or they are damaged.
        """
        inflater = zlib.decompressobj()
        try:
            data = inflater.decompress(self.data, self.size + 1)
        except zlib.error as error:
            raise WireError("inflate", str(error)) from None
        if len(data) != self.size or not inflater.eof or inflater.unused_data:
            raise WireError("inflate", f"{len(self.data)} bytes do not inflate to the {self.size} that were declared")
        return _unshuffled(data, self.width)


Frame = Raw | Deflated


def deflate(data: Raw, widths: Sequence[int]) -> Deflated | None:
    """The frame deflated, shuffled by that one of ``widths`` which suits a sample of it; none when it does not shrink."""
    if len(data) < LEAST_BYTES:
        return None
    start = max(0, len(data) - SAMPLE_BYTES) // 2  # the beginning may be a head of its own
    sample = data[start : start + SAMPLE_BYTES]
    lengths = {width: len(_deflated(sample, width)) for width in widths}
    width = min(widths, key=lengths.__getitem__)
    if lengths[width] > WORTH * len(sample):
        return None
    out = _deflated(data, width)
    return Deflated(out, len(data), width) if len(out) < len(data) else None


def plain(frame: Frame) -> Raw:
    """The bytes of a frame; raises :class:`WireError` as :meth:`Deflated.inflate` does."""
    return frame.inflate() if isinstance(frame, Deflated) else frame


def travelled(frames: Sequence[Frame]) -> int:
    """Bytes that frames had on their way."""
    return sum(len(f.data) if isinstance(f, Deflated) else len(f) for f in frames)


def _deflated(data: Raw, width: int) -> bytes:
    return zlib.compress(_shuffled(data, width), LEVEL)


def _shuffled(data: Raw, width: int) -> Raw:
    if width == 1:
        return data
    flat, whole = np.frombuffer(data, np.uint8), len(data) // width * width
    out = np.empty(len(data), np.uint8)
    out[:whole].reshape(width, -1)[:] = flat[:whole].reshape(-1, width).T
    out[whole:] = flat[whole:]
    return out.data


def _unshuffled(data: Raw, width: int) -> Raw:
    if width == 1:
        return data
    flat, whole = np.frombuffer(data, np.uint8), len(data) // width * width
    out = np.empty(len(data), np.uint8)
    out[:whole].reshape(-1, width)[:] = flat[:whole].reshape(width, -1).T
    out[whole:] = flat[whole:]
    return out.data
