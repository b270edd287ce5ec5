"""Pictures that a data set keeps as files inside its columns: of known kinds, and of the size that was declared."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.common.errors import ConfigError, PoolDamaged

Array = np.ndarray[Any, Any]
Read = Callable[[int, int], Sequence[bytes]]


class Pictures:
    """A column of pictures.

    Args:
        name: of the column, for errors.
        rows: how many there are.
        read: the files of rows ``[start, stop)``.
        shape: ``(h, w)`` or ``(h, w, bands)`` that each must have.
        kinds: which files they may be, in Pillow's names.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, name: str, rows: int, read: Read, shape: tuple[int, ...], kinds: tuple[str, ...]) -> None:
        self.name, self.shape = name, shape
        self._rows, self._read, self._kinds = rows, read, kinds

    def __len__(self) -> int:
        return self._rows

    def read(self, start: int, stop: int) -> Array:
        """Pictures ``[start, stop)``, ``(n, *shape)``.

        Raises:
            PoolDamaged: one is none of the kinds, or of another size than was declared.
        """
        files = self._read(start, stop)
        out = np.empty((len(files), *self.shape), np.uint8)
        for i, data in enumerate(files):
            out[i] = self._decode(data, start + i)
        return out

    def _decode(self, data: bytes, row: int) -> Array:
        try:
            from PIL import Image
        except ImportError as error:  # pragma: no cover - the extra is part of dev
            raise ConfigError("reading pictures needs pillow; install headrace[data]") from error
        bands = self.shape[2] if len(self.shape) == 3 else 1
        try:
            with Image.open(io.BytesIO(data), formats=self._kinds) as image:
                found = (image.height, image.width, len(image.getbands()))
                if found != (*self.shape[:2], bands):  # before anything is unpacked
                    raise PoolDamaged(f"{self.name}: row {row} is an image of {found}, expected {self.shape}")
                return np.asarray(image, np.uint8).reshape(self.shape)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise PoolDamaged(f"{self.name}: row {row} is no whole {' or '.join(self._kinds)} ({str(error)[:100]})") from error
