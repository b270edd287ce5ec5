"""The owner's lock on a pool directory: one living process at a time, released by its death."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import weakref
from pathlib import Path

from headrace.buffer.forks import fork_safe_lock
from headrace.common.errors import PoolError, PoolLocked

NAME = "lock"
BUFFER_LOCK = "buffer.lock"  # of a buffer process, which owns the directory before there is a pool
# A record lock does not exclude its own process, so that is done here.
_held: dict[str, int] = {}  # path -> pid of the process that holds it, this one or one that it was forked from
_guard = fork_safe_lock()  # reentrant: a collection may end an owner anywhere


class PoolLock:
    """Holds ``directory`` until :meth:`release` or the end of the process.

    A record lock rather than ``flock``: a child forked by the owner does not keep it alive, and does not own it.

    Raises:
        PoolLocked: another owner lives; the text names its pid and host.
    """

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self._path, self._pid = os.path.realpath(directory / name), os.getpid()
        with _guard:
            holder = _held.get(self._path)
            if holder == self._pid:
                raise PoolLocked(f"{directory} is owned by this very process, pid {holder}; close that pool first")
            if holder is not None:  # closing what was inherited would give up a lock that this process took
                raise PoolLocked(
                    f"{directory} is owned by pid {holder}, from which this process, pid {self._pid}, was forked; open it in a"
                    " process that was not"
                )
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = _owner(self._fd)
                os.close(self._fd)
                raise _locked(directory, owner) from error
            _held[self._path] = self._pid
        self._end = weakref.finalize(self, _let_go, self._path, self._fd)  # an owner that is dropped unclosed owns nothing
        self._end.atexit = False  # the end of the process does it
        note = f"{os.getpid()} on {socket.gethostname()}\n".encode()
        with contextlib.suppress(OSError):  # a full disk takes no note of who holds the lock, and it is held all the same
            os.pwrite(self._fd, note, 0)
            os.ftruncate(self._fd, len(note))

    @staticmethod
    def require_free(directory: Path, name: str = NAME) -> None:
        """Take nothing, but raise :class:`PoolLocked` when another process holds the lock in ``directory`` now."""
        try:
            fd = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise _locked(directory, _owner(fd)) from error
        finally:
            os.close(fd)

    @property
    def is_ours(self) -> bool:
        """Whether this process took the lock, and not one that it was forked from."""
        return os.getpid() == self._pid

    def require_ours(self) -> None:
        """Refuse a process that was forked from the owner; names both."""
        if not self.is_ours:
            raise PoolError(
                f"{os.path.dirname(self._path)}: pid {os.getpid()} was forked from the owner, pid {self._pid}, and may only"
                " read; let the owner write, or open a pool of its own in each process"
            )

    def release(self) -> None:
        """Let the next owner in; harmless when called twice."""
        self._end()


def _let_go(path: str, fd: int) -> None:
    with _guard:
        _held.pop(path, None)
        os.close(fd)


def _owner(fd: int) -> str:
    return os.pread(fd, 256, 0).decode(errors="replace").strip() or "unknown"


def _locked(directory: Path, owner: str) -> PoolLocked:
    return PoolLocked(f"{directory} is owned by pid {owner}; stop that buffer or choose another directory")
