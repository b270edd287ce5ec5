"""Reused memory: what was lent comes back by itself once the last array on it is gone.

Memory fresh from the system costs as much in page faults as filling it. Nobody gives any back: a view in a queue, a tensor, or
a message that still waits to be sent keeps it.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref

HUGE_BYTES = 4 << 20


class Lender:
    """Lends memory of one size; for use by any threads."""

    def __init__(self) -> None:
        self._size, self._free = 0, list[mmap.mmap]()

    def take(self, size: int) -> memoryview:
        """``size`` bytes that nobody else uses, holding whatever was left in them; what is free of another size is given up.

        Raises:
            OSError: there is no such memory.
        """
        if size != self._size:
            self._size, self._free = size, []
        try:
            memory = self._free.pop()
        except IndexError:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if size >= HUGE_BYTES:
                memory.madvise(mmap.MADV_HUGEPAGE)
        # Views of views point at the first owner, which has to be an object of this loan alone.
        loan = (ctypes.c_char * size).from_buffer(memory)
        weakref.finalize(loan, self._free.append, memory).atexit = False
        return memoryview(loan).cast("B")
