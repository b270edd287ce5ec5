"""Videos as LeRobot keeps them: one camera of many episodes behind one another, H.264 with a key frame every second frame."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from headrace.common.errors import PoolError

Array = np.ndarray[Any, Any]
CODEC, PIXELS = "libx264", "yuv420p"
OPTIONS = {"crf": "14", "g": "2", "bf": "0", "preset": "medium"}


class VideoWriter:
    """One MP4 file of frames ``(h, w, 3)`` uint8 RGB.

    Attributes:
        path: of the file.
        frames: written so far.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], fps: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.frames = path, 0
        if shape[0] % 2 or shape[1] % 2:
            raise PoolError(
                f"{path.name}: pictures of {shape}; a video needs even sides: --cameras image keeps them as they are"
            )
        rate = Fraction(fps).limit_denominator(100_000)
        self._container = av.open(str(path), "w", format="mp4")
        stream: Any = self._container.add_stream(CODEC, rate=rate, options=OPTIONS)
        stream.height, stream.width, stream.pix_fmt = shape[0], shape[1], PIXELS
        self._stream = stream
        self._stream.codec_context.time_base = 1 / rate
        self._stream.codec_context.thread_count = 1

    def add(self, frames: Array) -> None:
        """Append frames ``(n, h, w, 3)``."""
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame.pts, frame.time_base = self.frames, self._stream.codec_context.time_base
            self._container.mux(self._stream.encode(frame))
            self.frames += 1

    def nbytes(self) -> int:
        """Bytes of the file so far, about."""
        return self.path.stat().st_size

    def close(self) -> None:
        """Write what the codec has kept back, and the table of contents."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
