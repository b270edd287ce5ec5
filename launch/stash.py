"""A pool that lives elsewhere (``/dev/shm``) during a run: copied to the run directory at the end, and back on resume."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from headrace.buffer.manifest import sync_directory
from headrace.common.errors import NoSpace

CHUNK = 16 << 20
Tell = Callable[[str], None]


def move_tree(source: Path, target: Path, tell: Tell) -> None:
    """Move a directory to another medium: ``target`` appears when it is whole and on disk, then ``source`` goes.

    Args:
        source: an existing directory.
        target: where it goes; an older directory there is replaced once the copy is whole.
        tell: is told the progress in per cent.

    Raises:
        NoSpace: the copy does not fit; ``source`` is untouched.
    """
    files = [(p, p.relative_to(source)) for p in sorted(source.rglob("*")) if p.is_file()]
    total = sum(p.stat().st_size for p, _ in files)
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if total > free:
        raise NoSpace(f"copying {source} needs {total} bytes, {target.parent} has {free} free; the pool is still in {source}")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    done, shown = 0, -10
    for file, relative in files:
        copy = part / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        for size in _copy(file, copy):
            done += size
            percent = 100 * done // max(1, total)
            if percent >= shown + 10 or done == total:
                shown = percent
                tell(f"copying the pool to {target}: {percent} % of {total / (1 << 20):.0f} MiB")
    shutil.rmtree(target, ignore_errors=True)
    part.replace(target)
    sync_directory(target.parent)
    shutil.rmtree(source)


def _copy(source: Path, target: Path) -> Iterator[int]:
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(CHUNK):
            writer.write(chunk)
            yield len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
