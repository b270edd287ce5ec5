"""What a disk holds, what waits in its cache, and what a power cut leaves of both. No I/O.

A disk answers a write when it is in the cache, and may bring the cache to its medium at any time and in any order; only a flush
waits until all of it is there. So a cut leaves everything that was flushed, and of the writes since then any part.
"""

from __future__ import annotations

import numpy as np

SECTOR = 4096  # bytes that a disk writes whole or not at all
SURVIVALS = (0.0, 0.3, 0.7, 1.0)


class Disk:
    """One disk.

    Args:
        image: what is on it.
        honest: false plants a fault: a flush waits for nothing.

    Attributes:
        flushes: since the beginning.
        changes: writes and flushes since the beginning.
    """

    def __init__(self, image: bytes | bytearray, *, honest: bool = True) -> None:
        self._medium, self._seen = bytearray(image), bytearray(image)
        self._cache: list[tuple[int, bytes]] = []
        self._honest = honest
        self.flushes = self.changes = 0

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def cached(self) -> int:
        """Writes since the last flush."""
        return len(self._cache)

    def read(self, offset: int, size: int) -> bytes:
        """What was written last."""
        return bytes(self._seen[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        """Take ``data`` into the cache.

        Raises:
            ValueError: it does not fit the disk.
        """
        if offset < 0 or offset + len(data) > len(self._seen):
            raise ValueError(f"{len(data)} bytes at {offset} of a disk of {len(self._seen)}")
        self._seen[offset : offset + len(data)] = data
        self._cache.append((offset, data))
        self.changes += 1

    def flush(self) -> None:
        """Bring the cache to the medium."""
        self.flushes += 1
        self.changes += 1
        if self._honest:
            for offset, data in self._cache:
                self._medium[offset : offset + len(data)] = data
            self._cache.clear()

    def cut(self, survival: float, rng: np.random.Generator) -> bytearray:
        """What a cut leaves, when each cached sector has come to the medium with probability ``survival``, by itself."""
        image = bytearray(self._medium)
        for offset, data in self._cache:
            stops = [*range(SECTOR - offset % SECTOR, len(data), SECTOR), len(data)]
            kept = rng.random(len(stops)) < survival
            for start, stop, keep in zip([0, *stops], stops, kept, strict=False):
                if keep:
                    image[offset + start : offset + stop] = data[start:stop]
        return image
