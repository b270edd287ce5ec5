"""What a power cut leaves of a pool with ``ack: synced``: a second header, written only after what it speaks of is on disk.

Rules: data first, then the record (header fields, ledger, statistics) into the older of two checksummed copies, each step
waited for. After another boot only the record is believed, whatever else of the files reached the disk. So between two records
nothing may be written into a slot of a row or a frame that the last one calls live; the rings' slack is room for that.
``durable.bin`` is there exactly while the pool is owned at this level, or was when its machine stopped.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from pathlib import Path

from headrace.buffer import manifest, stamps
from headrace.buffer.files import OPTIONAL_COLUMNS, Field, Header, PoolFiles, column_file
from headrace.buffer.stamps import Stamps
from headrace.common import boot
from headrace.common.errors import PoolDamaged

NAME = "durable.bin"
_OURS = (Field.EPOCH, Field.NONCE, Field.OWNER)  # of the owner, and not of what it holds
_FIELDS = 512  # bytes of the header that hold fields
_NEVER = 1 << 62
_log = logging.getLogger(__name__)


def recover(files: PoolFiles, payload_size: int) -> None:
    """Put ``files`` back to their last record if the machine was started anew since they were written.

    Without a record (``ack: memory``) they are taken as they are, with a warning.

    Raises:
        PoolDamaged: there are records, and none is whole.
    """
    header = files.header
    if files.folder is None or header[Field.BOOT] in (0, boot.boot_number()):
        return
    if not (files.folder / NAME).exists():
        if header[Field.OWNER]:
            _log.warning(
                "%s: the machine stopped while this pool was in use with pool.ack: memory; rows of the last"
                " half minute may be lost or torn; pool.ack: synced keeps them",
                files.folder,
            )
        return
    fd, records = _open(files.folder / NAME, payload_size)
    os.close(fd)
    stamp = records.read(0, _NEVER)
    found = memoryview(stamp.payload[:_FIELDS]).cast("q")
    for field in Field:
        if field not in (*_OURS, Field.BOOT):
            header[field] = found[field]
    header[Field.EPOCH] = max(header[Field.EPOCH], found[Field.EPOCH])
    for _ in range(2):
        files.stamps.write(stamp.head, stamp.payload[_FIELDS:])


def remove(folder: Path) -> None:
    """The files in ``folder`` are no longer kept at this level."""
    if (folder / NAME).exists():
        (folder / NAME).unlink()
        manifest.sync_directory(folder)


class Durable:
    """Writer of the records of one pool.

    Args:
        files: of a directory.
        payload_size: bytes of ledger and statistics.
    """

    def __init__(self, files: PoolFiles, payload_size: int) -> None:
        if files.folder is None:
            raise PoolDamaged("a pool in anonymous memory has no records")
        self._path = files.folder / NAME
        new = not self._path.exists()
        self._making = files.folder / f"{NAME}.tmp" if new else None  # so that the name is of a file with a record
        self._fd, self._stamps = _open(self._making or self._path, payload_size)
        with contextlib.suppress(PoolDamaged):
            self._stamps.read(0, _NEVER)  # to overwrite the older one
        without = {column_file(name) for name in OPTIONAL_COLUMNS}  # derived values, changed all over the file
        self._data = [os.open(p, os.O_RDONLY) for p in sorted(files.folder.glob("*.npy")) if p.name not in without]
        self._row_slots, self._frame_slots = len(files.rows), len(next(iter(files.frames.values())))
        self._tail = self._first_frame = 0

    def save(self, header: Header, payload: bytes, first_frame: int) -> None:
        """Put everything committed so far on disk, and then the record of it.

        Args:
            header: as of now.
            payload: ledger and statistics as of now.
            first_frame: oldest frame that a live row uses.
        """
        for fd in self._data:
            os.fdatasync(fd)
        self._stamps.write(header.head, header.raw(_FIELDS) + payload)
        os.fdatasync(self._fd)
        if self._making is not None:
            self._making.rename(self._path)
            manifest.sync_directory(self._path.parent)
            self._making = None
        self._tail, self._first_frame = header.tail, first_frame

    def has_room(self, head: int, frame_head: int) -> bool:
        """Whether rings written up to these ids leave every row and frame of the last record alone."""
        return head - self._row_slots <= self._tail and frame_head - self._frame_slots <= self._first_frame

    def close(self) -> None:
        """Close the files."""
        for fd in (*self._data, self._fd):
            os.close(fd)


def _open(path: Path, payload_size: int) -> tuple[int, Stamps]:
    size = stamps.size(_FIELDS + payload_size)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.posix_fallocate(fd, 0, size)
    return fd, Stamps(mmap.mmap(fd, size), _FIELDS + payload_size, NAME)
