"""A directory under construction beside its place: hidden, its maker's alone, and complete when it gets its name.

Whoever makes one holds a lock on it, which ends with the process; what a killed maker has left is removed by the next one.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import uuid
from pathlib import Path

from headrace.buffer import manifest
from headrace.common.errors import PoolError


class Partial:
    """What is to become the directory ``target``, which is not there or is empty.

    Attributes:
        path: the directory until then.

    Raises:
        PoolError: ``target`` is a file or a link.
    """

    def __init__(self, target: Path) -> None:
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            what = "link" if target.is_symlink() else "file"
            raise PoolError(f"{target}: is a {what}; name a directory where nothing is yet")
        self._target = target
        prefix = f".{target.name}.partial-"
        for other in target.parent.glob(f"{glob.escape(prefix)}*"):
            _sweep(other)
        self.path = target.with_name(f"{prefix}{uuid.uuid4().hex}")
        self.path.mkdir(parents=True)
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def publish(self) -> None:
        """Give it its name."""
        if self._target.exists():
            self._target.rmdir()
        os.rename(self.path, self._target)
        manifest.sync_directory(self._target.parent)
        os.close(self._fd)

    def discard(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)


def _sweep(path: Path) -> None:
    """Remove ``path`` unless its maker lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no directory of ours
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(fd)
