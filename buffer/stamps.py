"""Two alternating, checksummed copies of a payload of fixed size, each stamped with the head that it covers.

Rules: the older copy is overwritten, so one valid copy is there at any instant. Rows from the older stamp on must stay
readable (whoever moves the tail sees to it), since after a kill in the middle of a write that copy is all there is.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from dataclasses import dataclass

from headrace.common.errors import PoolDamaged

_HEAD = struct.Struct("<qq")  # serial, stamp
_DIGEST = 32


@dataclass(frozen=True)
class Stamp:
    """A payload and the head that it covers."""

    head: int
    payload: bytes


class Stamps:
    """Writer and reader of the two copies in ``buffer``, which has :func:`size` bytes."""

    def __init__(self, buffer: mmap.mmap, payload_size: int, name: str = "ledger.bin") -> None:
        self._buffer, self._name = buffer, name
        self._payload_size = payload_size
        self._serial = [0, 0]
        self._heads = [0, 0]

    @property
    def nbytes(self) -> int:
        """Bytes of both copies."""
        return size(self._payload_size)

    @property
    def older(self) -> int:
        """Stamp of the older copy: the row that the tail must not pass."""
        return self._heads[self._serial.index(min(self._serial))]

    @property
    def newest(self) -> int:
        """Stamp of the newest copy."""
        return self._heads[self._serial.index(max(self._serial))]

    def write(self, head: int, payload: bytes) -> None:
        """Overwrite the older copy with ``payload``, which covers all rows below ``head``."""
        if len(payload) != self._payload_size:
            raise ValueError(f"payload of {len(payload)} bytes, declared {self._payload_size}")
        copy = self._serial.index(min(self._serial))
        serial = max(self._serial) + 1
        body = _HEAD.pack(serial, head) + payload
        start = copy * _copy_size(self._payload_size)
        self._buffer[start : start + _DIGEST + len(body)] = hashlib.sha256(body).digest() + body
        self._serial[copy], self._heads[copy] = serial, head

    def read(self, tail: int, head: int) -> Stamp:
        """The newest valid copy that covers no row beyond ``head``; the next write goes to the other one.

        Raises:
            PoolDamaged: no copy is valid, or it misses rows that are gone (below ``tail``).
        """
        found: Stamp | None = None
        for copy in (0, 1):
            start = copy * _copy_size(self._payload_size)
            digest = self._buffer[start : start + _DIGEST]
            body = self._buffer[start + _DIGEST : start + _DIGEST + _HEAD.size + self._payload_size]
            serial, stamp = _HEAD.unpack_from(body)
            valid = hashlib.sha256(body).digest() == digest and tail <= stamp <= head
            self._serial[copy], self._heads[copy] = (serial, stamp) if valid else (0, 0)
            if valid and serial == max(self._serial):
                found = Stamp(stamp, body[_HEAD.size :])
        if found is None:
            raise PoolDamaged(f"{self._name}: no copy is whole and covers rows {tail} to {head}")
        return found


def size(payload_size: int) -> int:
    """Bytes that the two copies take."""
    return 2 * _copy_size(payload_size)


def _copy_size(payload_size: int) -> int:
    whole = _DIGEST + _HEAD.size + payload_size
    return -(-whole // mmap.PAGESIZE) * mmap.PAGESIZE
