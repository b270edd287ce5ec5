"""Reused memory for batches: what was lent comes back by itself once the last array on it is gone.

A batch of images takes tens of megabytes, and memory fresh from the system costs as much in page faults as the copy itself.
Nobody gives a batch back: a view in a queue, a tensor, or a message that still waits to be sent keeps it.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from typing import Any

import numpy as np

from headrace.common.batch import Batch
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
        self._free: list[mmap.mmap] = []

    def take(self) -> Batch:
        """Arrays that nobody else uses, holding whatever was left in them; weights and sets are none."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = mmap.mmap(-1, self._size)
        # numpy lets views of views point at the first owner, which has to be an object of this loan alone.
        loan = (ctypes.c_char * self._size).from_buffer(memory)
        data = memoryview(loan)
        weakref.finalize(loan, self._free.append, memory).atexit = False
        ids, rows, *sides = (
            np.frombuffer(data, dtype, math.prod(shape), offset).reshape(shape) for dtype, shape, offset in self._places
        )
        keys = [o.key for o in self.spec.obs]
        return Batch(ids, rows, dict(zip(keys, sides[::2], strict=True)), dict(zip(keys, sides[1::2], strict=True)))
