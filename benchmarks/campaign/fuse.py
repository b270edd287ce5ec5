"""A disk as a file that the kernel reads and writes through this process, so that a loop device can lie on it.

The part of FUSE (linux/fuse.h, version 7.31) that a file system of one regular file needs; mounted over an ordinary file.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from enum import IntEnum

from campaign.disk import Disk

_HEAD = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extensions, padding
_REPLY = struct.Struct("<IiQ")  # length, error, unique
_INIT_IN, _INIT_OUT = struct.Struct("<IIII"), struct.Struct("<IIIIHHIIHHI28x")
_IO = struct.Struct("<QQII")  # of a read or a write: handle, offset, size, flags
_IO_SIZE = 40
_ATTRIBUTES = struct.Struct("<QII6Q10I")
_OPENED, _WRITTEN, _STATFS = struct.Struct("<QII"), struct.Struct("<II"), struct.Struct("<5Q10I")
VERSION = (7, 31)
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1 << 0, 1 << 5, 1 << 22
DIRECT_IO = 1  # of an open: no page cache of the kernel between the loop device and the disk
MOST = 1 << 20
VALID_S = 3600
NOSUID, NODEV = 2, 4


class Op(IntEnum):
    """Requests that are answered by more than "not implemented"."""

    FORGET = 2
    GETATTR = 3
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    BATCH_FORGET = 42


class DiskFile:
    """Serves ``disk`` as the file ``path``, which must be there, for whoever polls :meth:`fileno`.

    Attributes:
        dead: whether the power is off: reads, writes and flushes fail from then on.

    Raises:
        OSError: the kernel does not let this process mount.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self.dead = disk, False
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        options = f"fd={self._fd},rootmode={stat.S_IFREG:o},user_id=0,group_id=0"
        mount("powercut", path, "fuse", NOSUID | NODEV, options)

    def fileno(self) -> int:
        """What becomes readable when there is a request."""
        return self._fd

    def answer(self) -> bool:
        """Answer one request, if there is one; whether the file is still mounted."""
        try:
            request = os.read(self._fd, MOST + 65536)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                return True
            if error.errno == errno.ENODEV:
                return False
            raise
        _, opcode, unique, *_ = _HEAD.unpack_from(request)
        if opcode in (Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT):
            return True
        try:
            body, failed = self._perform(opcode, request), 0
        except OSError as error:
            body, failed = b"", -(error.errno or errno.EIO)
        os.write(self._fd, _REPLY.pack(_REPLY.size + len(body), failed, unique) + body)
        return True

    def _perform(self, opcode: int, request: bytes) -> bytes:
        if self.dead and opcode in (Op.READ, Op.WRITE, Op.FSYNC):
            raise OSError(errno.EIO, "the power is off")
        if opcode == Op.WRITE:
            _, offset, size, _ = _IO.unpack_from(request, _HEAD.size)
            data = request[_HEAD.size + _IO_SIZE :]
            self._disk.write(offset, data)
            return _WRITTEN.pack(size, 0)
        if opcode == Op.READ:
            _, offset, size, _ = _IO.unpack_from(request, _HEAD.size)
            return self._disk.read(offset, size)
        if opcode == Op.FSYNC:
            self._disk.flush()
            return b""
        if opcode == Op.INIT:
            *_, ahead, offered = _INIT_IN.unpack_from(request, _HEAD.size)
            flags = offered & (ASYNC_READ | BIG_WRITES | MAX_PAGES)
            return _INIT_OUT.pack(*VERSION, ahead, flags, 16, 12, MOST, 1, MOST // 4096, 0, 0)
        if opcode == Op.GETATTR:
            size = len(self._disk)
            times = (0, 0, 0)
            owner = (stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)
            return _ATTRIBUTES.pack(VALID_S, 0, 0, 1, size, size // 512, *times, 0, 0, 0, *owner)
        if opcode == Op.OPEN:
            return _OPENED.pack(1, DIRECT_IO, 0)
        if opcode == Op.STATFS:
            return _STATFS.pack(len(self._disk) // 4096, 0, 0, 1, 0, 4096, 255, 4096, *(0,) * 7)
        if opcode in (Op.RELEASE, Op.FLUSH):
            return b""
        raise OSError(errno.ENOSYS, f"request {opcode}")

    def close(self) -> None:
        """End: whatever is still asked for fails."""
        os.close(self._fd)


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """mount(2).

    Raises:
        OSError: it failed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {kind} on {target}: {os.strerror(number)}")
