"""What a power cut leaves of a pool with ``ack: synced``: a second header, written only after what it speaks of is on disk.

Rules: data first, then the record (header fields, ledger, statistics) into the older of two checksummed copies, each step
waited for. After another boot only the record is believed, whatever else of the files reached the disk; so too after a sync
that failed, since the kernel takes such pages for written from then on. So between two records nothing may be written into a
slot of a row or a frame that the last one calls live; the rings' slack is room for that.
``durable.bin`` is there exactly while the pool is owned at this level, or was when its machine stopped. Without it nobody knows
what of a pool that was in use has reached the disk, so that pool is refused.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from headrace.buffer import header as pool_header
from headrace.buffer import manifest, stamps
from headrace.buffer.files import OPTIONAL_COLUMNS, PoolFiles, column_file
from headrace.buffer.header import Field, Header
from headrace.buffer.stamps import Stamps
from headrace.common import boot
from headrace.common.errors import PoolDamaged, PoolTorn, SyncFailed

NAME = "durable.bin"
_OURS = (Field.EPOCH, Field.NONCE, Field.OWNER)  # of the owner, and not of what it holds
_FAILED = 1 << 47  # in BOOT, beside the number of the boot: a sync has failed
_NEVER = 1 << 62
_log = logging.getLogger(__name__)


def check_trusted(folder: Path) -> None:
    """Refuse files that were in use without records (``ack: memory``) when the machine stopped, before any of them is read.

    Raises:
        PoolTorn: names what to do.
    """
    if _stopped_in_use(folder) and not (folder / NAME).exists():
        raise PoolTorn(
            f"{folder.parent}: the machine stopped while this pool was in use with pool.ack: memory, so its rows may be torn;"
            " load the newest snapshot into a new directory, or delete this one (pool.ack: synced survives a power cut)"
        )


def check_recovered(folder: Path) -> None:
    """Refuse to look at files that are not what their owner will make of them.

    Raises:
        PoolTorn: the machine stopped while they were in use, and no owner has opened them since.
    """
    if _stopped_in_use(folder):
        raise PoolTorn(f"{folder.parent}: the machine stopped while this pool was in use; what is left, its next owner sees to")


def _stopped_in_use(folder: Path) -> bool:
    try:
        header = Header((folder / pool_header.NAME).read_bytes()[: Header.WORDS])
        if {Field.OWNER, Field.BOOT} & set(header.damaged()):
            return False
        return header[Field.OWNER] != 0 and header[Field.BOOT] & ~_FAILED not in (0, boot.boot_number())
    except (OSError, TypeError, IndexError):
        return False  # missing or cut, which whoever maps it will say, as of damage


def recover(files: PoolFiles, payload_size: int) -> None:
    """Put ``files`` back to their last record if the machine was started anew since they were written, or a sync failed.

    Raises:
        PoolDamaged: there are records, and none is whole.
    """
    header, here, folder = files.header, boot.boot_number(), files.folder
    if folder is None:
        return
    header.require_whole(folder, (Field.BOOT,))
    if header[Field.BOOT] in (0, here):
        return
    failed = header[Field.BOOT] == here | _FAILED  # in this boot, so what is mapped is whole, and only the disk is behind
    if (folder / NAME).exists():
        _restore(files, folder, payload_size)
        if not failed:
            for name in OPTIONAL_COLUMNS.keys() & files.columns.keys():
                files.columns[name][:] = 0  # derived and never synced: what is there may be a stranger's
    if failed:
        _log.warning("%s: a sync failed, so every page is written again", folder)
        files.dirty()


def _restore(files: PoolFiles, folder: Path, payload_size: int) -> None:
    fd, records = _open(folder / NAME, payload_size)
    os.close(fd)
    stamp = records.read(0, _NEVER)
    found, damaged = Header(stamp.payload[: Header.WORDS]), files.header.damaged()
    for field in Field:
        if field not in (*_OURS, Field.BOOT) or field in damaged:  # nobody knows which words of it the disk has
            files.header[field] = found[field]
    files.header[Field.EPOCH] = max(files.header[Field.EPOCH], found[Field.EPOCH])
    for _ in range(2):
        files.stamps.write(stamp.head, stamp.payload[Header.WORDS :])


@contextlib.contextmanager
def waiting(files: PoolFiles) -> Iterator[None]:
    """Around whatever waits for the disk: once that has failed, this owner can acknowledge nothing more.

    The kernel reports a failed write once and takes the page for written, so a sync that succeeds afterwards proves nothing.

    Raises:
        SyncFailed: it failed, now or before.
    """
    if has_failed(files):
        raise SyncFailed(f"{files.folder}: a sync failed before; close the pool and open it again")
    try:
        yield
    except OSError as error:
        files.header[Field.BOOT] = boot.boot_number() | _FAILED
        raise SyncFailed(
            f"{files.folder}: the disk failed to take what was to be acknowledged ({error.strerror or error}); nothing of it"
            " is acknowledged, and the pool goes on from its last sync when it is opened again"
        ) from error


def has_failed(files: PoolFiles) -> bool:
    """Whether a sync of this owner has failed."""
    return bool(files.header[Field.BOOT] & _FAILED)


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
        self._files, self._path = files, files.folder / NAME
        new = not self._path.exists()
        self._making = files.folder / f"{NAME}.tmp" if new else None  # so that the name is of a file with a record
        self._fd, self._stamps = _open(self._making or self._path, payload_size)
        with contextlib.suppress(PoolDamaged):
            self._stamps.read(0, _NEVER)  # to overwrite the older one
        without = {column_file(name) for name in OPTIONAL_COLUMNS}  # derived values, changed all over the file
        self._data = [os.open(p, os.O_RDONLY) for p in sorted(files.folder.glob("*.npy")) if p.name not in without]
        self._row_slots, self._frame_slots = len(files.rows), len(next(iter(files.frames.values())))
        self._head = self._tail = self._first_frame = 0

    def save(self, header: Header, payload: bytes, first_frame: int) -> None:
        """Put everything committed so far on disk, and then the record of it.

        Args:
            header: as of now.
            payload: ledger and statistics as of now.
            first_frame: oldest frame that a live row uses.

        Raises:
            SyncFailed: the disk did not take it, now or before; nothing of it may be acknowledged.
        """
        with waiting(self._files):
            for fd in self._data:
                os.fdatasync(fd)
            self._stamps.write(header.head, header.raw(Header.WORDS) + payload)
            os.fdatasync(self._fd)
            if self._making is not None:
                self._making.rename(self._path)
                manifest.sync_directory(self._path.parent)
                self._making = None
        self._head, self._tail, self._first_frame = header.head, header.tail, first_frame

    def holds(self, id_: int) -> bool:
        """Whether the last record speaks of the row ``id_``."""
        return id_ < self._head

    def has_room(self, head: int, frame_head: int) -> bool:
        """Whether rings written up to these ids leave every row and frame of the last record alone."""
        return head - self._row_slots <= self._tail and frame_head - self._frame_slots <= self._first_frame

    def close(self) -> None:
        """Close the files."""
        for fd in (*self._data, self._fd):
            os.close(fd)


def _open(path: Path, payload_size: int) -> tuple[int, Stamps]:
    size = stamps.size(Header.WORDS + payload_size)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.posix_fallocate(fd, 0, size)
    return fd, Stamps(mmap.mmap(fd, size), Header.WORDS + payload_size, NAME)
