"""Why a reader without a lock is sound, and the fence that it takes.

A commit writes only into slots that no live row uses, and only after the store that moved the tail past the rows which
used them. So a reader that copies rows, and afterwards loads the tail, knows of each copy: its id is at or above the tail,
and nobody had begun to write over it; or it is below, and the copy is thrown away. This needs stores to be seen in the
order in which they were made, and loads to be done in theirs. x86-64 promises both for plain moves (Intel SDM vol. 3A,
8.2.2), no other processor that Python runs on does, so elsewhere a live pool is not mapped. Two things are left:

- A compiler may move plain loads and stores. Here each is made by another bytecode through a function pointer of the
  interpreter or of numpy, which no compiler sees through.
- A large copy may use streaming stores, which are outside of that promise, and a fast string move, whose loads may be.
  So there is a fence between the copy and the header's field on both sides.

Python has no fence instruction, but taking a lock that is free is a locked compare-and-exchange, which is a full one
(SDM vol. 3A, 8.2.5): everything before it is done, streaming stores included, before anything after it begins.
"""

from __future__ import annotations

import platform
import threading

from headrace.common.errors import PoolError

ORDERED = ("x86_64", "amd64")


class Fence:
    """A full memory fence; each owner makes one of its own, so that it is always free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """Finish all loads and stores so far before any later one; 0.1 us."""
        if not self._lock.acquire(blocking=False):  # Ctrl-C came between these two lines, and left it taken
            self._lock = threading.Lock()
            self._lock.acquire()
        self._lock.release()


def require_ordered_stores() -> None:
    """Refuse a processor on which a mapped live pool could show torn rows as whole ones; :class:`PoolError` names it."""
    machine = platform.machine()
    if machine.lower() not in ORDERED:
        raise PoolError(f"a live pool is read by mapping on {' or '.join(ORDERED)} only, this is {machine or 'unknown'}")
