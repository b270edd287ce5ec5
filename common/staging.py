"""Reused memory for batches: one of images takes tens of megabytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.common.batch import Batch
from headrace.common.lent import Lender
from headrace.common.specs import TransitionSpec

Array = np.ndarray[Any, Any]
_ALIGN = 64


def batch_nbytes(spec: TransitionSpec, rows: int) -> int:
    """Bytes of a batch of ``rows`` rows: ids, rows, and both sides of every observation key."""
    return rows * (8 + spec.row_dtype.itemsize + 2 * spec.stack * spec.frame_nbytes)


class Staging:
    """Lends batches of ``rows`` rows of one spec; for use by any threads.

    Args:
        spec: columns.
        rows: rows of each batch.
    """

    def __init__(self, spec: TransitionSpec, rows: int) -> None:
        self.spec, self.rows = spec, rows
        stack = (spec.stack,) if spec.stack > 1 else ()
        columns: list[tuple[np.dtype[Any], tuple[int, ...]]] = [(np.dtype("<i8"), ()), (spec.row_dtype, ())]
        columns += [(np.dtype(o.dtype), (*stack, *o.shape)) for o in spec.obs for _ in range(2)]
        self._places: list[tuple[np.dtype[Any], tuple[int, ...], int]] = []
        self._size = 0
        for dtype, shape in columns:
            self._places.append((dtype, (rows, *shape), self._size))
            self._size += -(-rows * math.prod(shape) * dtype.itemsize // _ALIGN) * _ALIGN
        self._lender = Lender()

    def take(self) -> Batch:
        """Arrays that nobody else uses, holding whatever was left in them; weights and sets are none."""
        data = self._lender.take(self._size)
        ids, rows, *sides = (
            np.frombuffer(data, dtype, math.prod(shape), offset).reshape(shape) for dtype, shape, offset in self._places
        )
        keys = [o.key for o in self.spec.obs]
        return Batch(ids, rows, dict(zip(keys, sides[::2], strict=True)), dict(zip(keys, sides[1::2], strict=True)))
