"""Locks across a fork: a child has one thread, so a lock that another one held would stay taken in it for ever."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_taken: list[Any] = []
_forking = threading.RLock()


def fork_safe_lock() -> Any:
    """A ``threading.RLock`` that a fork waits for: in parent and child it is free then, and what it guards is whole."""
    lock = threading.RLock()
    with _forking:
        _locks.add(lock)
    return lock


def _before() -> None:
    _forking.acquire()
    for lock in list(_locks):
        _taken.append(lock)
        lock.acquire()


def _after() -> None:
    while _taken:
        with contextlib.suppress(RuntimeError):  # Ctrl-C came before it was taken
            _taken.pop().release()
    with contextlib.suppress(RuntimeError):
        _forking.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
