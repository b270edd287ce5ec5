"""Directories that appear whole or not at all, whatever kills the process that makes them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's names, are on the disk; raises :class:`OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_directory(final: Path, files: Mapping[str, bytes]) -> None:
    """Make the directory ``final`` with these files, name -> content, and wait until it is on the disk.

    Raises:
        OSError: it could not be written, or something lies there already; then nothing is left behind.
    """
    hidden = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
        for name, data in files.items():
            (hidden / name).write_bytes(data)
            sync(hidden / name)
        sync(hidden)
        hidden.rename(final)
        sync(final.parent)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
