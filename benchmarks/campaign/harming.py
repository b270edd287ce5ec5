"""Harm to files: a bit flipped, an end cut off, two swapped; and what a reader's log says of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


def files(folder: Path) -> list[Path]:
    """All files of a folder, in order."""
    return sorted(p for p in folder.rglob("*") if p.is_file())


def flip(folder: Path, rng: np.random.Generator) -> str:
    """One bit at a random place of all files together; the name of the file."""
    found = files(folder)
    offset = int(rng.integers(sum(path.stat().st_size for path in found)))
    for path in found:
        if offset < path.stat().st_size:
            data = bytearray(path.read_bytes())
            data[offset] ^= 1 << int(rng.integers(8))
            path.write_bytes(data)
            return path.name
        offset -= path.stat().st_size
    raise AssertionError("beyond the last file")


def truncate(path: Path, rng: np.random.Generator) -> None:
    """The end of a file, from a random place on."""
    with path.open("r+b") as file:
        file.truncate(int(rng.integers(path.stat().st_size)))


def swap(one: Path, other: Path) -> None:
    """Each file in place of the other."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


@contextmanager
def heard(name: str) -> Iterator[list[str]]:
    """What the log ``name`` says within, and nobody else hears."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]  # the shortest handler
    log = logging.getLogger(name)
    log.addHandler(handler)
    log.propagate = False
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.propagate = True
