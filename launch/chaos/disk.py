"""A disk of a job's own, small enough to be filled: a tmpfs, where this user may mount one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from headrace.common.errors import HeadraceError

SIZE = 64 << 20
PIECE = 1 << 16
TOOL_S = 30.0


class Disk:
    """Mounted in its context.

    Args:
        place: where; made, and left empty.
        keep: what lies on it at the end is copied there.
    """

    def __init__(self, place: Path, keep: Path) -> None:
        self.place, self._keep = place, keep
        self._ballast = place / "ballast"

    @staticmethod
    def is_possible() -> bool:
        """Whether this user may mount one."""
        return os.geteuid() == 0 and shutil.which("mount") is not None

    def fill(self) -> None:
        """Leave no byte free."""
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while file.write(bytes(PIECE)):
                pass

    def free(self) -> None:
        """Give back what was filled."""
        self._ballast.unlink(missing_ok=True)

    def __enter__(self) -> Disk:
        self.place.mkdir(parents=True)
        _tool("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self.place))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.free()
            shutil.copytree(self.place, self._keep)
        finally:
            _tool("umount", "--lazy", str(self.place))  # a process that is still dying may hold a file
            self.place.rmdir()


def _tool(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_S, check=False)
    if done.returncode:
        raise HeadraceError(f"{' '.join(words)}: {done.stderr.strip()}")
