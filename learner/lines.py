"""Lines: a file that only grows, by whole lines. A disk that takes none of one, or a part, spoils no other."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class Lines:
    """Appends to ``path``, which is made when missing."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"  # whoever wrote here before was killed in a line

    def add(self, line: str) -> None:
        """Append one line, which holds no line break.

        Raises:
            OSError: it is not there, or not all of it; what is added later begins a line of its own.
        """
        data = b"\n" * self._torn + line.encode() + b"\n"
        done = os.write(self._fd, data)  # one call: nothing is kept back that a later one would bring
        if done:
            self._torn = data[done - 1 : done] != b"\n"
        if done < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
