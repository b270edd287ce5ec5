"""How much room a medium has left, so that a pool too large is an error at start and not a SIGBUS or an OOM kill later."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.common.errors import DiskFailed, NoSpace, describe_os_error

OF_POOL = "lower pool.capacity, raise pool.min_block_rows, or choose another directory"
OF_COPY = "make room there, or choose another directory"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs", "hugetlbfs")


@dataclass(frozen=True)
class Room:
    """Bytes that may still be taken, and what limits them."""

    free: int
    limit: str


def require(needed: int, directory: Path | None, root: Path = Path("/"), *, what: str = "the pool", fix: str = OF_POOL) -> None:
    """Refuse an allocation that does not fit.

    Args:
        needed: bytes that are about to be reserved.
        directory: where the files go; None for anonymous memory.
        what: needs them.
        fix: what can be done where they are not there.
        root: where ``proc`` and ``sys`` are looked up.

    Raises:
        NoSpace: with the bytes needed and free, and what limits them.
    """
    rooms = [disk_room(directory)] if directory is not None else []
    if directory is None or filesystem(directory, root) in _MEMORY_FILESYSTEMS:
        rooms.extend(memory_rooms(root))
    for room in rooms:
        if needed > room.free:
            raise NoSpace(f"{what} needs {_size(needed)}, free are {_size(room.free)} ({room.limit}); {fix}")


@contextlib.contextmanager
def writing(what: str, directory: Path) -> Iterator[None]:
    """What the system says to whoever writes ``what`` into ``directory`` becomes an error of the pool.

    Raises:
        NoSpace: there was no room, with what is free.
        DiskFailed: anything else that the system said.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise DiskFailed(f"{what} in {directory}: {describe_os_error(error)}") from error
        there = next(place for place in (directory, *directory.absolute().parents) if place.exists())
        free = _size(disk_room(there).free)
        raise NoSpace(f"{what} does not fit into {directory} ({error.strerror}, free are {free}); {OF_COPY}") from error


def disk_room(directory: Path) -> Room:
    """Room on the filesystem that holds ``directory``."""
    stat = os.statvfs(directory)
    return Room(stat.f_bavail * stat.f_frsize, f"file system of {directory}")


def filesystem(directory: Path, root: Path = Path("/")) -> str:
    """Type of the filesystem that holds ``directory``, such as ``ext4`` or ``tmpfs``; empty when unknown."""
    place = str(directory.resolve())
    best, kind = -1, ""
    for line in _read(root / "proc/self/mounts").splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        mount = words[1].replace("\\040", " ")
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), words[2]
    return kind


def memory_rooms(root: Path = Path("/")) -> Iterator[Room]:
    """Room in memory: what the kernel can give, and each cgroup limit (v1 and v2) above this process."""
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            yield Room(int(line.split()[1]) * 1024, "available memory")
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _cgroup(mounted, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            yield from _cgroup(mounted / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _cgroup(mounted: Path, path: str, limit_file: str, usage_file: str, prefix: str) -> Iterator[Room]:
    group = mounted / path.lstrip("/")
    while True:
        limit, usage = _number(group / limit_file), _number(group / usage_file)
        if limit is not None and usage is not None:
            # Page cache of files is given back under pressure; pages of tmpfs are not, and are not counted here.
            stat = dict(line.split() for line in _read(group / "memory.stat").splitlines() if line.count(" ") == 1)
            cache = sum(int(stat.get(f"{prefix}{name}_file", 0)) for name in ("active", "inactive"))
            yield Room(max(0, limit - usage + cache), f"memory limit of cgroup /{group.relative_to(mounted)}")
        if group in (mounted, group.parent):
            return
        group = group.parent


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None  # "max" means no limit


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _size(n: int) -> str:
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{n} bytes ({value:.1f} {unit})"
