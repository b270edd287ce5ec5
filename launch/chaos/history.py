"""Histories: what one process did, in an append-only file of its own, each line written before the act that it tells.

A line is a JSON array: the time (``time.monotonic``, s, one clock for all processes of a host), what, and its values. The first
one is ``[time, "begin", {...}]`` and says whose history it is. A line that a SIGKILL has cut is none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUFFIX = ".jsonl"
Line = list[Any]


class History:
    """The history of this process, or of a part of it.

    Args:
        path: of a file that does not exist yet.
        about: whose it is.

    Raises:
        FileExistsError: there is one already.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        self.write("begin", {**about, "pid": os.getpid()})

    def write(self, what: str, *values: Any) -> None:
        """Add a line; it outlives this process once this returns."""
        line = json.dumps([round(time.monotonic(), 6), what, *values], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """No line follows."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def own_path(directory: Path, kind: str, identity: str) -> Path:
    """Of a history of this process; its name has a time too, since the system gives a pid again."""
    return directory / f"{kind}-{identity}-{os.getpid()}-{time.monotonic_ns() // 1_000_000}{SUFFIX}"


@dataclass(frozen=True)
class Told:
    """A history as it was read: whose, when it began, and its lines behind the first."""

    about: Mapping[str, Any]
    begun: float
    lines: list[Line]


def read(path: Path) -> Told | None:
    """The history in a file; none where not even its first line is whole."""
    whole = path.read_bytes().split(b"\n")[:-1]
    if not whole:
        return None
    (begun, _, about), *lines = map(json.loads, whole)
    return Told(about, begun, lines)


def read_all(directory: Path, kind: str) -> list[Told]:
    """The histories of one kind, files ``KIND-*.jsonl``, in the order in which they begin."""
    found = (read(path) for path in directory.glob(f"{kind}-*{SUFFIX}"))
    return sorted((told for told in found if told is not None), key=lambda told: told.begun)
