"""Frames of an MP4 file by number: frame k is the one that is shown at ``k / fps`` seconds."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError, PoolDamaged

try:
    import av
    import av.error
except ImportError as error:  # pragma: no cover - the extra is part of dev
    raise ConfigError("LeRobot data sets need pyarrow and av; install headrace[lerobot-data]") from error

Array = np.ndarray[Any, Any]
NEAR = 64  # frames ahead that are decoded on the way rather than sought


class Video:
    """One file, decoded forwards as far as possible; the slice that was read last is kept, since the next one overlaps it.

    Args:
        path: of the file.
        shape: ``(h, w, 3)`` of every frame.
        fps: frames a second.

    Raises:
        PoolDamaged: no MP4 file with one video of that size.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], fps: float) -> None:
        self.path, self.shape, self._fps = path, shape, fps
        self._kept, self._first = np.empty((0, *shape), np.uint8), 0
        try:
            # The format is said, and no protocol but files: a text that names other places is no MP4.
            self._container = av.open(str(path), format="mp4", options={"protocol_whitelist": "file"})
        except (OSError, av.error.FFmpegError, ValueError) as error:
            raise PoolDamaged(f"{path}: not a whole MP4 file ({str(error)[:200]})") from error
        streams = self._container.streams.video
        found = [(s.codec_context.height, s.codec_context.width, 3) for s in streams]
        if found != [shape]:
            self.close()
            raise PoolDamaged(f"{path}: holds videos of {found}, expected one of {shape}")
        self._stream = streams[0]
        self._stream.codec_context.thread_count = 1
        self._frames, self._begun = self._decode(0), False
        self._next = 0  # the number that the decoder gives next, at least

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def read(self, start: int, stop: int) -> Array:
        """Frames ``[start, stop)``, ``(n, h, w, 3)`` uint8 RGB.

        Raises:
            PoolDamaged: one is not there, of another size, or cannot be decoded.
        """
        out = np.empty((stop - start, *self.shape), np.uint8)
        low, high = max(start, self._first), min(stop, self._first + len(self._kept))
        if low == start and low < high:
            out[: high - low] = self._kept[low - self._first : high - self._first]
        else:
            high = start
        if high < stop:
            self._fill(out[high - start :], high)
        self._kept, self._first = out, start
        return out

    def _fill(self, out: Array, start: int) -> None:
        if not self._next <= start <= self._next + NEAR:
            self._frames, self._next = self._decode(start), 0
        for i in range(len(out)):
            out[i] = self._frame(start + i)

    def _frame(self, wanted: int) -> Array:
        for number, frame in self._frames:
            self._next = number + 1
            if number == wanted:
                return frame.to_ndarray(format="rgb24")
            if number > wanted:
                raise PoolDamaged(f"{self.path}: frame {wanted} is missing, the next one is {number}")
        raise PoolDamaged(f"{self.path}: frame {wanted} is missing, the video ends before it")

    def _decode(self, start: int) -> Iterator[tuple[int, av.VideoFrame]]:
        """Frames with their numbers, from ``start`` or a key frame before it."""
        try:
            if self._begun:
                self._container.seek(int(start / self._fps / Fraction(self._stream.time_base or 1)), stream=self._stream)
            self._begun = True
            last = -1
            for frame in self._container.decode(self._stream):
                place = (frame.time or 0.0) * self._fps
                number = round(place)
                if abs(place - number) > 0.25 or number <= last:
                    raise PoolDamaged(f"{self.path}: a frame at {frame.time} s behind number {last}, at {self._fps:g} a second")
                if (frame.height, frame.width, 3) != self.shape:
                    raise PoolDamaged(f"{self.path}: frame {number} is of {(frame.height, frame.width)}, expected {self.shape}")
                last = number
                yield number, frame
        except (OSError, av.error.FFmpegError, ValueError) as error:
            raise PoolDamaged(f"{self.path}: cannot be decoded from frame {start} on ({str(error)[:200]})") from error


class Part:
    """Frames ``[first, first + rows)`` of a :class:`Video` as a column."""

    dtype = np.dtype(np.uint8)

    def __init__(self, video: Video, first: int, rows: int) -> None:
        self.name, self.shape = str(video.path), video.shape
        self._video, self._first, self._rows = video, first, rows

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> Array:
        """Frames ``[start, stop)`` of the part, ``(n, h, w, 3)``."""
        return self._video.read(self._first + start, self._first + stop)
