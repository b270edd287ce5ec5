"""A journal of one record: what is about to be changed in place, whole on its medium before the first byte changes.

Rules: a record is written over the previous one, which was carried out before; so the file never grows and is never cut.
A record whose digest does not match was never finished and counts as never written.
"""

from __future__ import annotations

import hashlib
import mmap
import struct

_HEAD = struct.Struct("<qq")  # serial, bytes of the record
_DIGEST = 32


class Journal:
    """Writer and reader of the record in ``buffer``, which has :func:`size` bytes.

    Attributes:
        synced: whether a record is to be on disk, and not only in the mapped file, before anything changes.
    """

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self.synced = False

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return len(self._buffer)

    def write(self, serial: int, record: bytes) -> None:
        """Put ``record`` in place of the one before it."""
        if _DIGEST + _HEAD.size + len(record) > len(self._buffer):
            raise ValueError(f"record of {len(record)} bytes, the journal has {len(self._buffer)}")
        body = _HEAD.pack(serial, len(record)) + record
        self._buffer[: _DIGEST + len(body)] = hashlib.sha256(body).digest() + body
        if self.synced:
            self._buffer.flush()

    def read(self, serial: int) -> bytes | None:
        """The record ``serial``, if it is there and whole."""
        start = _DIGEST + _HEAD.size
        found, length = _HEAD.unpack_from(self._buffer, _DIGEST)
        if found != serial or not 0 <= length <= len(self._buffer) - start:
            return None
        body = self._buffer[_DIGEST : start + length]
        return body[_HEAD.size :] if hashlib.sha256(body).digest() == self._buffer[:_DIGEST] else None


def size(record_size: int) -> int:
    """Bytes that a journal for records of up to ``record_size`` bytes takes."""
    return -(-(_DIGEST + _HEAD.size + record_size) // mmap.PAGESIZE) * mmap.PAGESIZE
